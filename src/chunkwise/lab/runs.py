"""The file of a comparison: what was asked, then one line for every finished run.

Written while the comparison goes on, so that a break loses at most the run it
hit. Invariant: a line is whole or it is not there (a torn last line is dropped on
reading), and a run that is in the file is never measured again. Times are kept
in microseconds' precision; no text of a prompt or an answer is in it.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from chunkwise.errors import UserMistake
from chunkwise.measured import Floats, Measured

SCHEMA = "chunkwise.compare-runs/1"
MAX_LINE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Run:
    """One arm, once, on the requests of its round."""

    arm: str
    round: int  # every arm runs once a round, all on the same requests
    place: int  # its turn within the round
    measured: Measured  # of the requests that were answered
    lag: Floats  # seconds by which the client sent each request later than planned
    failed: dict[str, int] = field(default_factory=dict)  # reason: how many requests

    def to_json(self) -> dict[str, Any]:
        """Return what is written to the file."""
        m = self.measured
        return {
            "arm": self.arm,
            "round": self.round,
            "place": self.place,
            "arrival": m.arrival.round(6).tolist(),
            "prompt_tokens": m.prompt_tokens.tolist(),
            "token_counts": m.token_counts.tolist(),
            "token_times": m.token_times.round(6).tolist(),
            "classes": m.classes,
            "lag": self.lag.round(6).tolist(),
            "failed": self.failed,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "Run":
        """Read back what `to_json` wrote."""
        classes = found["classes"]
        measured = Measured(
            np.asarray(found["arrival"], dtype=np.float64),
            np.asarray(found["prompt_tokens"], dtype=np.int64),
            np.asarray(found["token_counts"], dtype=np.int64),
            np.asarray(found["token_times"], dtype=np.float64),
            None if classes is None else tuple(classes),
        )
        lag = np.asarray(found["lag"], dtype=np.float64)
        failed = dict(found["failed"])
        return cls(found["arm"], found["round"], found["place"], measured, lag, failed)


def begin(file: Path, asked: dict[str, Any]) -> None:
    """Start a file with what was asked: arms, baseline, load, promise, rule, environment."""
    _append(file, {"schema": SCHEMA, **asked}, mode="x")


def add(file: Path, run: Run) -> None:
    """Add a finished run; it is on the disk when this returns."""
    _append(file, run.to_json(), mode="a")


def mend(file: Path) -> None:
    """Cut off a torn last line, so that what is added next is a line of its own."""
    try:
        with file.open("rb+") as torn:
            content = torn.read()
            torn.truncate(content.rfind(b"\n") + 1)
    except OSError as error:
        raise UserMistake(f"Cannot go on with {file}: {error.strerror or error}.") from None


def read(file: Path) -> tuple[dict[str, Any], tuple[Run, ...]]:
    """Return what was asked and every whole run."""
    try:
        asked, *rest = _whole_lines(file)
        if asked["schema"] != SCHEMA:
            raise UserMistake(f"{file} was written as {asked['schema']}; this reads {SCHEMA}.")
        return asked, tuple(Run.from_json(line) for line in rest)
    except OSError as error:
        raise UserMistake(f"Cannot read {file}: {error.strerror or error}.") from None
    except (KeyError, TypeError, ValueError) as error:
        raise UserMistake(
            f"{file} is not a file of runs ({error}). Name the file that compare wrote."
        ) from error


def _append(file: Path, line: dict[str, Any], mode: str) -> None:
    with file.open(mode) as out:
        out.write(json.dumps(line, separators=(",", ":")) + "\n")
        out.flush()
        os.fsync(out.fileno())


def _whole_lines(file: Path) -> Iterator[dict[str, Any]]:
    with file.open("rb") as source:
        while line := source.readline(MAX_LINE_BYTES):
            if not line.endswith(b"\n"):
                return  # torn by a break
            yield json.loads(line)
