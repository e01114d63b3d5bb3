"""What the pacer learned of this model on this machine, kept for the next start.

A file for each engine of a server, because each learns by itself. Invariant: the
step's path makes a small copy now and then; writing happens beside it, whole or
not at all; a file that cannot be read or written costs a line in the log, never
a request. Without one the pacer begins with what kernel times of the same kind of
GPU say, where the extra `plan` is installed, or carefully from nothing.
"""

import time
from pathlib import Path
from typing import Any

from chunkwise.cost import calibrations
from chunkwise.cost.expected import SOURCE, expect
from chunkwise.cost.fitted import FittedCost
from chunkwise.cost.live import LiveCost
from chunkwise.cost.step import Provenance
from chunkwise.engine.failopen import log
from chunkwise.errors import ChunkwiseError
from chunkwise.observed import Header, Record

EVERY = 300.0  # seconds between two files
LEAST_STEPS = 200
WORST = 0.5  # median error beyond which nothing is kept


def where(header: Header) -> Provenance:
    """Return what a calibration of this engine is filed under."""
    return Provenance(
        "live", header.model, header.device, header.tensor_parallel, engine=header.vllm
    )


def known(header: Header) -> FittedCost | None:
    """Return what was learned before: by this engine, or by `chunkwise calibrate`."""
    for folder in (_folder(header), None):
        try:
            if (found := calibrations.find(where(header), folder)) is not None:
                return found
        except (ChunkwiseError, OSError) as error:
            log.warning("Chunkwise begins without a calibration: %s", error)
    return None


def expected(header: Header, model_config: Any) -> FittedCost | None:
    """Return what this engine's steps should cost by measured kernel times, if anyone knows."""
    try:
        eager = bool(model_config.enforce_eager)
        return expect(str(model_config.model), where(header), header.budget, header.seqs, eager)
    except Exception as error:  # tables of others: whatever is wrong with them, begin from nothing
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        log.info("Chunkwise expects nothing of this GPU before the first step: %s", reason)
        return None


def is_expected(cost: FittedCost | None) -> bool:
    """Tell whether it was read from tables, not measured here."""
    return cost is not None and cost.provenance.source == SOURCE


class Keeper:
    """Usage: `keeper.offer(cost)` in the step's path; the scribe calls the rest."""

    doing = "keep its calibration"
    consequence = "the next start begins from an older one, or from nothing"

    def __init__(self, header: Header):
        self._path = calibrations.place(where(header), _folder(header))
        self._latest: FittedCost | None = None
        self._written = time.monotonic()

    def offer(self, cost: LiveCost) -> None:
        """Take a copy of what is known by now, if it is worth keeping."""
        if cost.steps >= LEAST_STEPS:
            found = cost.fitted()
            if found.error.p50 <= WORST:
                self._latest = found

    def take(self, record: Record) -> None:
        """Records are for others."""

    def flush(self, dropped: int) -> None:
        """Write the latest copy, now and then."""
        if time.monotonic() - self._written >= EVERY:
            self._written = time.monotonic()
            self.close()

    def close(self) -> None:
        """Write the latest copy."""
        found, self._latest = self._latest, None
        if found is not None:
            calibrations.save(found, self._path)


def _folder(header: Header) -> Path:
    return calibrations.home() / f"live-{header.engine}"
