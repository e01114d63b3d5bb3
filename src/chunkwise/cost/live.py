"""The fitted cost while an engine runs: every step teaches, none is kept.

Kept are discounted sums of products (seven terms, so 28 numbers) and the
coefficients, improved by one pass of coordinate descent a step: non-negative
at every moment, bounded by the largest seconds-per-unit ever seen, and without
a matrix that could blow up. When predictions are off the same way for a while,
the machine has changed: the past is rescaled to the present and counts for
little from then on. Plain floats in lists made once: `update` allocates nothing
worth the name.
"""

from math import log
from statistics import median

import numpy as np

from chunkwise.cost.fitted import (
    TERMS,
    Coefficients,
    FittedCost,
    Largest,
    quantiles,
    row_of,
)
from chunkwise.cost.step import ErrorQuantiles, Provenance, StepShape

FORGETTING = 0.9995
MOST_GAIN = 1e6  # the newest step's weight before all sums are scaled down
START_STEPS = 200.0  # how many steps a saved calibration counts for
EXPECTED_STEPS = 5.0  # ... and an expectation, which nobody has measured here
SETTLED_STEPS = 50  # before that, surprises are no news
NEAR = 0.3  # a step further off than this counts for less, in proportion
FAR = log(4)  # ... and this is as far off as one step can be
DRIFT_MEMORY = 0.9  # of the mean of log(measured / predicted): about ten steps
DRIFT = 0.25
DRIFT_LOOKS_BACK = 9  # steps whose median error tells by how much
DRIFT_KEEPS = 0.05  # of the past's weight, once it is rescaled
RECENT = 256
COUNT = len(TERMS)
PREFILL = tuple(range(COUNT))
DECODE_ONLY = (0, 5, 6)  # the terms that a step without prefill has


class LiveCost:
    """Usage: `cost = LiveCost(provenance, saved)`; each step `cost.update(shape, seconds)`."""

    def __init__(
        self, provenance: Provenance, start: FittedCost | None = None, measured: bool = True
    ):
        self.provenance = provenance
        self.steps = 0
        self._products = [[0.0] * COUNT for _ in range(COUNT)]
        self._targets = [0.0] * COUNT
        self._found = [0.0] * COUNT
        self._gain = 1.0
        self._weights = 0.0  # of all steps in the sums
        self._largest = Largest()
        self._recent = [0.0] * RECENT
        self._drift = 0.0
        self._settled = 0  # steps since the start or the last change of the machine
        if start is not None:
            self._found = [getattr(start.coefficients, name) for name in TERMS]
            weight = START_STEPS if measured else EXPECTED_STEPS
            self._largest = start.largest if measured else Largest()
            for i, products in enumerate(start.products):
                self._products[i] = [weight * value for value in products]
                # Targets that make the saved coefficients the answer.
                self._targets[i] = sum(
                    p * x for p, x in zip(self._products[i], self._found, strict=True)
                )
            self._settled = int(START_STEPS) if measured else SETTLED_STEPS - DRIFT_LOOKS_BACK
            self._weights = weight
        self._current: Coefficients | None = None

    @property
    def error(self) -> ErrorQuantiles | None:
        """Quantiles of the errors of the last predictions, each made before its step was seen."""
        if not self.steps:
            return None
        return quantiles(np.array(self._recent[: min(self.steps, RECENT)]))

    @property
    def coefficients(self) -> Coefficients:
        """The terms as they are now."""
        if self._current is None:
            self._current = Coefficients(*self._found)
        return self._current

    def fitted(self) -> FittedCost:
        """Return what is known by now, to be kept and started from again."""
        weights = self._weights or 1.0
        return FittedCost(
            self.coefficients,
            self.provenance,
            self.error or ErrorQuantiles(0, 0.0, 0.0, 0.0, 0.0),
            self._largest,
            products=tuple(tuple(value / weights for value in row) for row in self._products),
        )

    def seconds(self, shape: StepShape) -> float:
        """Return how long a step of this shape takes, as of now."""
        return (self._current or self.coefficients).seconds(shape)

    def covers(self, shape: StepShape) -> bool:
        """Tell whether steps as large as this one were seen."""
        return self._largest.covers(shape)

    def largest_chunk(self, shape: StepShape, allowance: float, context: int, at_most: int) -> int:
        """Return the most tokens of one more chunk that keep the allowance."""
        return self.coefficients.largest_chunk(shape, allowance, context, at_most)

    def update(self, shape: StepShape, seconds: float) -> None:
        """Learn from a step that took so long."""
        if seconds <= 0 or not shape.tokens:
            return
        predicted = self.seconds(shape)
        self._recent[self.steps % RECENT] = predicted / seconds - 1
        self.steps += 1
        self._settled += 1
        weight = self._gain
        if self._settled > SETTLED_STEPS and predicted > 0:
            off = max(-FAR, min(FAR, log(seconds / predicted)))
            self._drift = DRIFT_MEMORY * self._drift + (1 - DRIFT_MEMORY) * off
            if abs(self._drift) > DRIFT:
                self._start_anew()
                weight = self._gain
            elif abs(off) > NEAR:
                weight *= NEAR / abs(off)
        self._add(shape, seconds, weight)
        self._weights += weight
        self._improve()
        self._current = None
        self._gain /= FORGETTING
        if self._gain > MOST_GAIN:
            self._scale(1 / self._gain, 1 / self._gain)
            self._weights /= self._gain
            self._gain = 1.0
        if not self._largest.covers(shape):
            self._largest = self._largest.with_shape(shape)

    def _add(self, shape: StepShape, seconds: float, weight: float) -> None:
        row = row_of(shape)
        each = weight / seconds
        for i in PREFILL if shape.chunks else DECODE_ONLY:
            self._targets[i] += each * row[i]
            share = each * row[i] / seconds
            products = self._products[i]
            for j in PREFILL if shape.chunks else DECODE_ONLY:
                products[j] += share * row[j]

    def _improve(self) -> None:
        """One pass of coordinate descent: each term at its best while the others stand still."""
        x = self._found
        for i, products in enumerate(self._products):
            if products[i] > 0:
                a, b, c, d, e, f, g = products
                told = a * x[0] + b * x[1] + c * x[2] + d * x[3] + e * x[4] + f * x[5] + g * x[6]
                best = x[i] + (self._targets[i] - told) / products[i]
                x[i] = best if best > 0 else 0.0

    def _start_anew(self) -> None:
        """The machine is slower or faster by a factor: carry that into the past, and doubt it."""
        last = [self._recent[(self.steps - 1 - back) % RECENT] for back in range(DRIFT_LOOKS_BACK)]
        factor = 1 / (1 + median(last))
        # Had every step taken `factor` times as long, these would be the sums.
        self._scale(DRIFT_KEEPS / factor**2, DRIFT_KEEPS / factor)
        self._weights *= DRIFT_KEEPS
        self._found = [factor * value for value in self._found]
        self._drift = 0.0
        self._settled = SETTLED_STEPS - DRIFT_LOOKS_BACK

    def _scale(self, products: float, targets: float) -> None:
        for row in self._products:
            for j in range(COUNT):
                row[j] *= products
        for i in range(COUNT):
            self._targets[i] *= targets
