"""How long requests are: counts, shares, histogram and quantiles that merge.

Token lengths are small whole numbers, so a table of value and count is exact
and small for real traffic. Past `MOST_VALUES` different values the table turns
into a KLL sketch, and only the quantiles become approximate. Invariant: counts,
sums, maxima, shares over the fixed thresholds and the histogram are exact in
both forms, and merging two summaries equals summarising both inputs at once
(for quantiles of a sketch: within its stated rank error).
"""

import base64
from typing import Annotated, Self

import datasketches
import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

THRESHOLDS = (1_024, 2_048, 4_096, 8_192, 32_768)
# Powers of two and their middles: 0, 1, 2, 3, 4, 6, 8, 12, … ; bin i is [edge i, edge i+1).
EDGES = (
    0,
    1,
    *(edge for power in range(1, 31) for edge in (2**power, 3 * 2 ** (power - 1))),
    2**31,
)
LARGEST = 2**31 - 1
MOST_VALUES = 65_536
# Rank error of one quantile 0.28% (99% confidence) in about 12 kB.
SKETCH_K = 1_000
_DENSE = 2**20

Ints = npt.NDArray[np.int64]
Whole = Annotated[int, Field(ge=0, le=2**63 - 1)]
Length = Annotated[int, Field(ge=0, le=LARGEST)]
# Bounded, because turning a table into a sketch takes time in proportion.
Count = Annotated[int, Field(ge=0, le=10**10)]


class LengthSummary(BaseModel):
    """Lengths of many requests. Usage: `summary.quantile(0.95)`, `a.merged(b)`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: Count
    total: Whole
    largest: Length
    above: dict[int, tuple[Whole, Whole]]  # threshold -> requests above it, and their tokens
    histogram: dict[
        Annotated[int, Field(ge=0, lt=len(EDGES) - 1)], Count
    ]  # index of EDGES -> requests, empty bins left out
    values: Annotated[list[Length], Field(max_length=MOST_VALUES)] | None = None
    counts: list[Count] | None = None
    sketch: str | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.values is None) != (self.counts is None) or (
            (self.values is None) == (self.sketch is None)
        ):
            raise ValueError("lengths need either a table of values and counts, or a sketch")
        if self.values is not None and self.counts is not None:
            if len(self.values) != len(self.counts) or sum(self.counts) != self.count:
                raise ValueError("the table of lengths does not add up to its count")
            if any(a >= b for a, b in zip(self.values, self.values[1:], strict=False)):
                raise ValueError("the table of lengths is not in ascending order")
        if set(self.above) != set(THRESHOLDS):
            raise ValueError("the thresholds of the lengths are not the ones used here")
        return self

    @property
    def exact(self) -> bool:
        """Whether quantiles are exact."""
        return self.sketch is None

    @property
    def rank_error(self) -> float:
        """By how much the rank of a quantile may be off, as a share (99% confidence)."""
        return 0.0 if self.exact else self._kll().normalized_rank_error(False)

    @property
    def mean(self) -> float:
        """The mean length."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, q: float) -> int:
        """Return the smallest length that at least a share `q` of requests do not exceed."""
        if not self.count:
            return 0
        if self.values is None:
            return self.largest if q >= 1 else int(self._kll().get_quantile(q, True))
        cumulated = np.cumsum(np.asarray(self.counts, dtype=np.int64))
        rank = max(1, int(np.ceil(round(q * self.count, 6))))
        return self.values[int(np.searchsorted(cumulated, rank))]

    def share_above(self, length: int) -> float:
        """Return the share of requests longer than `length`."""
        if not self.count:
            return 0.0
        if length in self.above:
            return self.above[length][0] / self.count
        if self.values is None:
            return 1.0 - float(self._kll().get_rank(min(length, LARGEST), True))
        index = int(np.searchsorted(np.asarray(self.values), length, side="right"))
        return sum(self.counts[index:]) / self.count if self.counts else 0.0

    def merged(self, other: "LengthSummary") -> "LengthSummary":
        """Return the summary of both inputs."""
        collector = LengthCollector()
        for part in (self, other):
            collector.absorb(part)
        return collector.summary()

    def sample(self, uniform: npt.NDArray[np.float64]) -> Ints:
        """Return one length per number in [0, 1), distributed as these are."""
        if self.values is None:
            kll = self._kll()
            grid = np.asarray(kll.get_quantiles(np.linspace(0, 1, 4097), True), dtype=np.int64)
            at: Ints = np.ceil(uniform * 4096).astype(np.int64)
            return np.take(grid, at)
        cumulated = np.cumsum(np.asarray(self.counts, dtype=np.float64)) / max(1, self.count)
        index = np.searchsorted(cumulated, uniform, side="right")
        last = len(self.values) - 1
        return np.take(np.asarray(self.values, dtype=np.int64), np.minimum(index, last))

    def _kll(self) -> datasketches.kll_ints_sketch:
        assert self.sketch is not None
        return datasketches.kll_ints_sketch.deserialize(base64.b64decode(self.sketch))


class LengthCollector:
    """Folds arrays of lengths into a summary. Usage: `c.add(array); c.summary()`."""

    def __init__(self) -> None:
        self._count = self._total = self._largest = 0
        self._above = dict.fromkeys(THRESHOLDS, (0, 0))
        self._histogram = np.zeros(len(EDGES) - 1, dtype=np.int64)
        self._dense: Ints = np.zeros(0, dtype=np.int64)
        self._far: dict[int, int] = {}  # the few values of _DENSE and more
        self._kll: datasketches.kll_ints_sketch | None = None

    def add(self, lengths: Ints) -> None:
        """Take in lengths, each from 0 to `LARGEST`."""
        if not len(lengths):
            return
        if int(lengths.max()) < _DENSE:
            table = np.bincount(lengths)
            values = np.flatnonzero(table)
            counts = table[values]
        else:
            values, counts = np.unique(lengths, return_counts=True)
        self._note(values, counts)
        if self._kll is None:
            self._tabulate(values, counts)
        else:
            self._kll.update(lengths.astype(np.int32))

    def absorb(self, summary: LengthSummary) -> None:
        """Take in what was summarised before."""
        self._count += summary.count
        self._total += summary.total
        self._largest = max(self._largest, summary.largest)
        for threshold, (requests, tokens) in summary.above.items():
            mine = self._above[threshold]
            self._above[threshold] = (mine[0] + requests, mine[1] + tokens)
        for index, requests in summary.histogram.items():
            self._histogram[index] += requests
        if summary.values is None:
            self._sketch().merge(summary._kll())
        elif self._kll is None:
            self._tabulate(np.asarray(summary.values), np.asarray(summary.counts))
        else:
            _update(self._kll, np.asarray(summary.values), np.asarray(summary.counts))

    def summary(self) -> LengthSummary:
        """Return what was taken in so far."""
        near = np.flatnonzero(self._dense)
        values = [*near.tolist(), *sorted(self._far)]
        counts = [*self._dense[near].tolist(), *(self._far[value] for value in sorted(self._far))]
        sketch = None if self._kll is None else base64.b64encode(self._kll.serialize()).decode()
        bins = np.flatnonzero(self._histogram)
        return LengthSummary(
            count=self._count,
            total=self._total,
            largest=self._largest,
            above=self._above,
            histogram={int(index): int(self._histogram[index]) for index in bins},
            values=values if sketch is None else None,
            counts=counts if sketch is None else None,
            sketch=sketch,
        )

    def _note(self, values: Ints, counts: Ints) -> None:
        self._count += int(counts.sum())
        self._total += int((values * counts).sum())
        self._largest = max(self._largest, int(values[-1]))
        self._histogram += np.bincount(
            np.searchsorted(EDGES, values, side="right") - 1,
            weights=counts,
            minlength=len(EDGES) - 1,
        ).astype(np.int64)
        for threshold, (requests, tokens) in self._above.items():
            start = int(np.searchsorted(values, threshold, side="right"))
            more = int(counts[start:].sum()), int((values[start:] * counts[start:]).sum())
            self._above[threshold] = (requests + more[0], tokens + more[1])

    def _tabulate(self, values: Ints, counts: Ints) -> None:
        near = values < _DENSE
        if near.any():
            need = int(values[near][-1]) + 1
            if need > len(self._dense):
                grown = np.zeros(need, dtype=np.int64)
                grown[: len(self._dense)] = self._dense
                self._dense = grown
            self._dense[values[near]] += counts[near]
        for value, count in zip(values[~near].tolist(), counts[~near].tolist(), strict=True):
            self._far[value] = self._far.get(value, 0) + count
        if int(np.count_nonzero(self._dense)) + len(self._far) > MOST_VALUES:
            self._sketch()

    def _sketch(self) -> datasketches.kll_ints_sketch:
        if self._kll is None:
            self._kll = datasketches.kll_ints_sketch(SKETCH_K)
            near = np.flatnonzero(self._dense)
            _update(self._kll, near, self._dense[near])
            far = np.asarray(sorted(self._far), dtype=np.int64)
            _update(self._kll, far, np.asarray([self._far[int(v)] for v in far], dtype=np.int64))
            self._dense, self._far = np.zeros(0, dtype=np.int64), {}
        return self._kll


def _update(kll: datasketches.kll_ints_sketch, values: Ints, counts: Ints) -> None:
    # The sketch takes single values: repeat each one, a bounded piece at a time.
    piece = 2**20
    ends = np.cumsum(counts)
    for start in range(0, int(ends[-1]) if len(ends) else 0, piece):
        stop = min(start + piece, int(ends[-1]))
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        inside = counts[first : last + 1].copy()
        inside[-1] -= int(ends[last]) - stop
        inside[0] -= start - (int(ends[first]) - int(counts[first]))
        kll.update(np.repeat(values[first : last + 1], inside).astype(np.int32))
