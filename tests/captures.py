"""Captures made by hand, for tests that need no engine."""

import gzip
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from chunkwise.observed import SUFFIX, Chunk, Header, Record, Request, Step, header_line, line_of

HEADER = Header(
    capture="aa11",
    run="rr11",
    started=1_000_000.0,
    vllm="0.32.0",
    model="tiny",
    device="cpu",
    budget=2048,
    block_size=16,
    prefix_caching=True,
    classes=("chat",),
)


def write(
    folder: Path, records: Iterable[Record], name: str = "a", torn: int = 0, **header: Any
) -> Path:
    """Write one file of a capture; `torn` bytes are cut off its end."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [header_line(replace(HEADER, **header)), *(line_of(record) for record in records)]
    packed = gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode())
    path = folder / f"{name}{SUFFIX}"
    path.write_bytes(packed[: len(packed) - torn])
    return path


def request(number: int, arrival: float, **more: Any) -> Request:
    """A request with a plain life."""
    made = Request(
        number=number,
        arrival=arrival,
        prompt=100,
        output=4,
        cached=16,
        chunks=1,
        preemptions=0,
        priority=0,
        name="chat",
        scheduled=arrival + 0.1,
        first_token=arrival + 0.3,
        end=arrival + 1.0,
        first_step=0,
        last_step=3,
        reason="length",
        blocks=bytes(range(48)),
    )
    made = made._replace(**more)
    return made._replace(**{n: round(v, 6) for n, v in made._asdict().items() if type(v) is float})


def life() -> list[Record]:
    """Two requests: one decodes, the other's long prompt makes a step long; then a preemption."""
    return [
        Step(0, 1.0, 0.1, (Chunk(0, 100, 0),), running=1, ended=(0,)),
        Step(1, 1.02, 0.02, (), 1, 1, 100, 0.1, 1),
        Step(2, 1.32, 0.3, (Chunk(1, 2000, 0),), 1, 1, 101, 0.5, 2, ended=(1,)),
        Step(3, 1.34, 0.02, (), 2, 2, 2102, 0.6, 2),
        Step(4, 1.36, 0.02, (), 1, 1, 103, 0.9, 1, 1, preempted=(1,)),
        Step(5, 1.56, 0.2, (Chunk(1, 2001, 0),), 1, 1, 104, 0.9, 2, ended=(1,)),
        request(0, 0.7, end=1.56, first_token=1.0, output=6, last_step=5),
        Step(6, 1.86, 0.02, (), 1, 1, 2002, 0.5, 1),
        request(1, 1.0, end=1.86, first_token=1.32, scheduled=1.02, prompt=2000, preemptions=1),
    ]
