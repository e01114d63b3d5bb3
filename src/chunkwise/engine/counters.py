"""What an engine did, counted step by step and readable from another process.

vLLM's engine core usually lives in a process of its own, and nothing it sends
back has room for our figures. So the scheduler keeps a handful of numbers in a
small shared file, and the caller maps the same file. Invariant: only `Counters`
writes, one number at a time, and a count never goes down.
"""

import math
import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from chunkwise.engine.recorder import Step


@dataclass(frozen=True, slots=True)
class Counted:
    """Plain sums over all steps so far."""

    steps: float = 0
    prefill_steps: float = 0
    mixed_steps: float = 0  # prefill and decode in one step
    requests: float = 0  # prompts whose prefill has begun
    chunked_requests: float = 0
    chunks: float = 0  # pieces of prompts that were cut; a whole prompt has none
    chunk_steps: float = 0
    chunk_seconds: float = 0  # of the steps that carried such a piece
    prefill_tokens: float = 0
    decode_tokens: float = 0
    preemptions: float = 0
    kv_peak: float = 0  # largest share of the KV cache in use


@dataclass(frozen=True, slots=True)
class ChunkingStats:
    """What `LLM.chunking_stats()` returns. Usage: `llm.chunking_stats().chunking_rate`."""

    requests: int
    chunked_requests: int
    chunks: int
    chunking_rate: float
    prefill_tokens: int
    decode_tokens: int
    steps: int
    interleaving_ratio: float
    mean_chunk_seconds: float
    kv_headroom: float
    preemptions: int

    @classmethod
    def of(cls, seen: Counted) -> Self:
        """Turn sums into the figures that people ask for."""

        def share(part: float, whole: float) -> float:
            return part / whole if whole else 0.0

        return cls(
            requests=int(seen.requests),
            chunked_requests=int(seen.chunked_requests),
            chunks=int(seen.chunks),
            chunking_rate=share(seen.chunked_requests, seen.requests),
            prefill_tokens=int(seen.prefill_tokens),
            decode_tokens=int(seen.decode_tokens),
            steps=int(seen.steps),
            interleaving_ratio=share(seen.mixed_steps, seen.prefill_steps),
            mean_chunk_seconds=share(seen.chunk_seconds, seen.chunk_steps),
            kv_headroom=1.0 - seen.kv_peak,
            preemptions=int(seen.preemptions),
        )


_NAMES = tuple(field.name for field in fields(Counted))
_FORMAT = struct.Struct(f"={len(_NAMES)}d")


def create(path: Path) -> None:
    """Make the shared file, all zero, readable by its owner only."""
    path.touch(mode=0o600)
    path.write_bytes(bytes(_FORMAT.size))


def read(path: Path) -> Counted | None:
    """Return the sums as they are now, or None if counting has failed."""
    seen = Counted(*_FORMAT.unpack(path.read_bytes()))
    return None if math.isnan(seen.steps) else seen


class Counters:
    """The writer's side. Usage: `Counters(path).step(step, preempted=(), kv_usage=0.1)`."""

    def __init__(self, path: Path):
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _FORMAT.size)
        self._sums = dict.fromkeys(_NAMES, 0.0)
        self._cut: set[str] = set()
        # Preempted requests prefill again: work, but not another request.
        self._again: set[str] = set()

    def step(self, step: Step, preempted: Iterable[str], kv_usage: float) -> bool:
        """Count one scheduled step; return whether it carries a piece of a cut prompt."""
        sums = self._sums
        pieces = 0
        for chunk in step.chunks:
            name = chunk.request_id
            first = name not in self._cut and name not in self._again
            sums["requests"] += first
            if not chunk.last and name not in self._cut:
                self._cut.add(name)
                sums["chunked_requests"] += first
            pieces += name in self._cut
            if chunk.last:
                self._cut.discard(name)
                self._again.discard(name)
            sums["prefill_tokens"] += chunk.tokens
        for name in preempted:
            self._cut.discard(name)
            self._again.add(name)
            sums["preemptions"] += 1
        sums["steps"] += 1
        sums["prefill_steps"] += bool(step.chunks)
        sums["mixed_steps"] += bool(step.chunks and step.decodes)
        sums["chunks"] += pieces
        sums["decode_tokens"] += step.decodes
        sums["kv_peak"] = max(sums["kv_peak"], kv_usage)
        self._publish()
        return pieces > 0

    def chunk_time(self, seconds: float) -> None:
        """Count how long a step with a piece of a cut prompt took."""
        self._sums["chunk_steps"] += 1
        self._sums["chunk_seconds"] += seconds
        self._publish()

    def void(self) -> None:
        """Let readers know that the sums are no longer true."""
        self._sums["steps"] = math.nan
        self._publish()

    def _publish(self) -> None:
        _FORMAT.pack_into(self._shared, 0, *self._sums.values())
