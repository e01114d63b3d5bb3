"""Steps of one size do not all take the same time: draw each one's own.

A fitted cost prices the typical step; on a busy machine some take much longer,
queues form behind those, and a simulation of typical steps alone is too fast.
Invariant: same seed, same draws; the mean of many draws is the mean of the ratios.
"""

from collections.abc import Sequence

import numpy as np

from chunkwise.cost.step import StepCost, StepShape

DRAWN_AT_ONCE = 4096


class Scattered:
    """Usage: `Scattered(cost, ratios=[0.9, 1.0, 1.3], seed=0).seconds(shape)`."""

    def __init__(self, cost: StepCost, ratios: Sequence[float], seed: int):
        self.covers = cost.covers
        self._cost = cost
        self._ratios = np.asarray(ratios, dtype=float)
        self._rng = np.random.default_rng(seed)
        self._drawn: list[float] = []

    def seconds(self, shape: StepShape) -> float:
        """Return how long this one step of the shape takes."""
        if not self._drawn:
            self._drawn = self._rng.choice(self._ratios, DRAWN_AT_ONCE).tolist()
        return self._cost.seconds(shape) * self._drawn.pop()
