"""When requests come: rate, bursts and regularity, from one ordered pass.

Invariant: memory does not grow with the length of the trace. Peaks over 1, 10
and 60 seconds need only the window that is open (arrivals are in order); the
picture over time has at most `MOST_BINS` bins, whose width doubles when they
run out. Merging takes traces as separate stretches of time, one after another:
counts, gaps and peaks stay exact, and nothing is said about their overlap.
"""

import math
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from chunkwise.errors import UserMistake

WINDOWS = (1, 10, 60)
MOST_BINS = 512

Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**10)]


class ArrivalSummary(BaseModel):
    """Arrivals of one or more traces. Usage: `summary.rate`, `summary.peak_to_mean(10)`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: Count
    seconds: Seconds
    gaps: Count
    gap_squares: Annotated[float, Field(ge=0, le=1e34, allow_inf_nan=False)]
    peaks: dict[int, Count]  # window in seconds -> most requests in one window
    bin_seconds: Annotated[float, Field(gt=0, le=1e12)]
    bins: Annotated[list[Count], Field(max_length=MOST_BINS)]

    @model_validator(mode="after")
    def _same_windows(self) -> Self:
        if set(self.peaks) != set(WINDOWS):
            raise ValueError("the windows of the arrivals are not the ones used here")
        return self

    @property
    def rate(self) -> float | None:
        """Requests per second; None where all came at once."""
        return self.requests / self.seconds if self.seconds else None

    @property
    def variation(self) -> float | None:
        """Coefficient of variation of the time between arrivals; 1 is a Poisson process."""
        if self.gaps < 2 or not self.seconds:
            return None
        mean = self.seconds / self.gaps
        return math.sqrt(max(0.0, self.gap_squares / self.gaps - mean**2)) / mean

    def peak_to_mean(self, window: int) -> float | None:
        """Return the fullest `window` over the mean one; None for a trace no longer than it."""
        if self.rate is None or self.seconds < window:
            return None
        return self.peaks[window] / (self.rate * window)

    def merged(self, other: "ArrivalSummary") -> "ArrivalSummary":
        """Return both, as stretches of time one after another."""
        width = max(self.bin_seconds, other.bin_seconds)
        bins = [*self._rebinned(width), *other._rebinned(width)]
        while len(bins) > MOST_BINS:
            bins, width = _halved(bins), width * 2
        return ArrivalSummary(
            requests=self.requests + other.requests,
            seconds=self.seconds + other.seconds,
            gaps=self.gaps + other.gaps,
            gap_squares=self.gap_squares + other.gap_squares,
            peaks={w: max(self.peaks[w], other.peaks[w]) for w in WINDOWS},
            bin_seconds=width,
            bins=bins,
        )

    def _rebinned(self, width: float) -> list[int]:
        bins, own = self.bins, self.bin_seconds
        while own < width:
            bins, own = _halved(bins), own * 2
        return bins


class ArrivalCollector:
    """Folds arrays of arrival seconds, in order, into a summary."""

    def __init__(self) -> None:
        self._rows = self._gaps = 0
        self._first = self._last = 0.0
        self._gap_squares = 0.0
        self._peaks = dict.fromkeys(WINDOWS, 0)
        self._open = dict.fromkeys(WINDOWS, (0, 0))  # window -> its index, requests so far
        self._width = 1.0
        self._bins = np.zeros(MOST_BINS, dtype=np.int64)

    def add(self, arrivals: npt.NDArray[np.float64]) -> None:
        """Take in the next arrivals; earlier ones than before are the user's mistake."""
        if not len(arrivals):
            return
        if not self._rows:
            self._first = self._last = float(arrivals[0])
        gaps = np.diff(arrivals, prepend=self._last)
        if gaps.min() < 0:
            late = int(np.argmax(gaps < 0))
            raise UserMistake(
                f"Request {self._rows + late + 1:,} arrives {-gaps[late]:,.3f} s before the one "
                f"above it: sort the rows by arrival time first."
            )
        since = arrivals - self._first
        # Not a dot product: its threads cost more than they bring at this size.
        self._gap_squares += float(np.square(gaps).sum())
        self._gaps += len(arrivals) - (0 if self._rows else 1)
        self._rows += len(arrivals)
        self._last = float(arrivals[-1])
        for window in WINDOWS:
            self._count(window, since)
        self._draw(since)

    def summary(self) -> ArrivalSummary:
        """Return what was taken in so far."""
        seconds = self._last - self._first
        used = int(seconds / self._width) + 1
        return ArrivalSummary(
            requests=self._rows,
            seconds=seconds,
            gaps=self._gaps,
            gap_squares=self._gap_squares,
            peaks=self._peaks,
            bin_seconds=self._width,
            bins=self._bins[:used].tolist(),
        )

    def _count(self, window: int, since: npt.NDArray[np.float64]) -> None:
        first, last = int(since[0] // window), int(since[-1] // window)
        if last - first < len(since):
            # In order, so it is enough to find where each window begins.
            counts = _counts_between(since, window, first, last)
        else:  # more windows than requests
            index = since // window
            starts = np.flatnonzero(np.diff(index, prepend=-1))
            counts = np.diff(starts, append=len(index))
        opened, before = self._open[window]
        if first == opened:
            counts[0] += before
        self._peaks[window] = max(self._peaks[window], int(counts.max()))
        self._open[window] = (last, int(counts[-1]))

    def _draw(self, since: npt.NDArray[np.float64]) -> None:
        while since[-1] >= self._width * MOST_BINS:
            self._bins = np.asarray(_halved(self._bins.tolist() + [0] * MOST_BINS))
            self._width *= 2
        self._bins += _counts_between(since, self._width, 0, MOST_BINS - 1)


def _counts_between(
    since: npt.NDArray[np.float64], width: float, first: int, last: int
) -> npt.NDArray[np.int64]:
    edges = np.arange(first, last + 1) * width
    return np.diff(np.searchsorted(since, edges), append=len(since))


def _halved(bins: list[int]) -> list[int]:
    even = bins if len(bins) % 2 == 0 else [*bins, 0]
    return [a + b for a, b in zip(even[::2], even[1::2], strict=True)]
