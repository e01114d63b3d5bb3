"""What is written down while the clock runs, and the columns it becomes.

Invariant: a step costs two appends and its tokens' numbers, no object a token;
sorting tokens by request is one pass of numpy at the end.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from chunkwise.measured import Floats, Ints, Measured
from chunkwise.sim.traffic import Traffic

StepRow = tuple[float, float, float, int, int, int, int, int, int, int]


@dataclass(frozen=True)
class Steps:
    """One row a step that carried tokens."""

    start: Floats  # when the device began with it
    end: Floats
    kv_use: Floats  # share of the pool, after it was scheduled
    prefill_tokens: Ints
    chunks: Ints
    decodes: Ints
    decode_context: Ints
    running: Ints  # requests that run, after it was scheduled
    waiting: Ints
    preempted: Ints

    @classmethod
    def of(cls, rows: list[StepRow]) -> "Steps":
        """Make columns of rows."""
        table = np.asarray(rows, dtype=np.float64).reshape(-1, 10).T
        start, end, kv_use, *counts = table
        return cls(start, end, kv_use, *(column.astype(np.int64) for column in counts))

    @classmethod
    def joined(cls, parts: "Sequence[Steps]") -> "Steps":
        """Put several engines' steps into one table, in order of time."""
        order = np.argsort(np.concatenate([part.start for part in parts]), kind="stable")
        columns = (
            np.concatenate([getattr(part, field.name) for part in parts])[order]
            for field in fields(cls)
        )
        return cls(*columns)

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Simulation:
    """What happened. Usage: `simulate(…).measured.ttft`."""

    measured: Measured  # in order of arrival
    steps: Steps
    cached_tokens: Ints  # [requests], of the prompt, found in the prefix cache
    refused: Mapping[int, str]  # request: why it was not served
    notes: tuple[str, ...] = ()

    @property
    def preemptions(self) -> int:
        """How often a request was put back for want of KV cache."""
        return int(self.steps.preempted.sum())

    @property
    def cache_hit_share(self) -> float:
        """The share of prompt tokens that the prefix cache held."""
        asked = int(self.measured.prompt_tokens.sum())
        return float(self.cached_tokens.sum()) / asked if asked else 0.0


class Recorder:
    """Collects while the clock runs."""

    def __init__(self, requests: int):
        self.arrival = [0.0] * requests
        self.steps: list[StepRow] = []
        self.cached: list[tuple[int, int]] = []
        self._owners = array("q")
        self._times: list[float] = []
        self._counts: list[int] = []

    def came(self, tokens: Sequence[int], now: float) -> None:
        """Note a token for each of these requests."""
        self._owners.extend(tokens)
        self._times.append(now)
        self._counts.append(len(tokens))

    def measured(self, traffic: Traffic) -> Measured:
        """Return the tokens that have come, request after request."""
        owners = np.frombuffer(self._owners, dtype=np.int64).copy()
        times = np.repeat(np.asarray(self._times), np.asarray(self._counts, dtype=np.int64))
        order = np.argsort(owners, kind="stable")
        return Measured(
            np.asarray(self.arrival),
            traffic.prompt,
            np.bincount(owners, minlength=len(traffic)).astype(np.int64),
            times[order],
            traffic.classes,
        )

    def simulation(
        self, traffic: Traffic, refused: Mapping[int, str], notes: tuple[str, ...]
    ) -> Simulation:
        """Return it all as columns."""
        cached = np.zeros(len(traffic), dtype=np.int64)
        for number, tokens in self.cached:
            cached[number] = tokens
        return Simulation(self.measured(traffic), Steps.of(self.steps), cached, refused, notes)
