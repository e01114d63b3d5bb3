"""Monotone curves: measured tables without their glitches, looked up in a microsecond.

Invariant: a `Curve` never falls, between its points or beyond them, so that
every sum of curves over a step's sums never falls either.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

import numpy as np

from chunkwise.cost.nnls import Floats, nnls

Bends = tuple[float, ...]


class Curve:
    """Straight lines between points. Usage: `Curve([0, 512], [0.001, 0.012])(256)`."""

    __slots__ = ("_slopes", "_starts", "_xs")

    def __init__(self, xs: Sequence[float], values: Sequence[float]):
        """Make a curve of the points, raised to the largest value so far where they fall."""
        raised = np.maximum.accumulate(np.asarray(values, dtype=np.float64))
        slopes: list[float] = (np.diff(raised) / np.diff(np.asarray(xs, dtype=np.float64))).tolist()
        # Beyond the last point it goes on as over the last stretch; before the first it is flat.
        self._xs = [-math.inf, *map(float, xs)]
        self._slopes = [0.0, *slopes, slopes[-1]]
        first: float = float(raised[0])
        # Value at 0 of each stretch's line, so that a look-up is one product and one sum.
        self._starts = [first] + [
            float(value) - slope * x
            for value, slope, x in zip(raised, self._slopes[1:], self._xs[1:], strict=True)
        ]

    def __call__(self, x: float) -> float:
        """Return the value at x; below the first point, the first value."""
        at = bisect_right(self._xs, x) - 1
        return self._starts[at] + self._slopes[at] * x


class CurveSum:
    """A constant plus a curve of each of two sums, fitted to measured points."""

    __slots__ = ("constant", "first", "second")

    def __init__(self, constant: float, first: Curve, second: Curve):
        self.constant = constant
        self.first = first
        self.second = second

    @classmethod
    def fit(
        cls, sums: Floats, values: Floats, weights: Floats, bends: tuple[Bends, Bends]
    ) -> "CurveSum":
        """Fit values to sums (a column each): lines that bend where told and never fall."""
        columns = [np.ones((len(values), 1))]
        columns += [_ramps(sums[:, index], at) for index, at in enumerate(bends)]
        rows = np.hstack(columns) * weights[:, None]
        found = nnls(rows.T @ rows, rows.T @ (values * weights))
        split = 1 + len(bends[0])
        return cls(
            float(found[0]), _joined(found[1:split], bends[0]), _joined(found[split:], bends[1])
        )

    def __call__(self, first: float, second: float) -> float:
        """Return the fitted value at these sums."""
        return self.constant + self.first(first) + self.second(second)


def envelope(points: Sequence[int], measure: Callable[[int], float]) -> Curve:
    """Measure a table at the points and return it levelled: no dips, and no lone peak stays."""
    return Curve(points, levelled([measure(point) for point in points]))


def levelled(values: Sequence[float]) -> list[float]:
    """Return the nearest values that never fall (isotonic regression of relative distances).

    Raising what follows to a peak instead would let one bad measurement at a
    small size lift everything above it. Usage: `levelled([1, 9, 2, 3])`.
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value in values:
        mean, weight, count = value, 1 / max(value, 1e-12) ** 2, 1
        while blocks and blocks[-1][0] >= mean:
            before, before_weight, before_count = blocks.pop()
            total = before_weight + weight
            mean = (before * before_weight + mean * weight) / total
            weight, count = total, count + before_count
        blocks.append((mean, weight, count))
    return [mean for mean, _, count in blocks for _ in range(count)]


def _ramps(x: Floats, bends: Bends) -> Floats:
    """Return a column for each stretch: how much of x lies in it."""
    ends = [*bends[1:], np.inf]
    stretches = zip(bends, ends, strict=True)
    return np.column_stack([np.clip(x, start, end) - start for start, end in stretches])


def _joined(slopes: Floats, bends: Bends) -> Curve:
    xs = [*bends, 2 * bends[-1]]  # one point past the last bend fixes the slope from there on
    return Curve(xs, [0.0, *np.cumsum(slopes * np.diff(np.asarray(xs)))])
