import numpy as np
import pytest
from tests.sim.costs_for_tests import LinearCost

from chunkwise.cost.step import StepShape
from chunkwise.sim.scatter import Scattered

SHAPE = StepShape.of([(100, 0)], [500])


def drawn(seed: int, count: int = 10_000) -> list[float]:
    cost = Scattered(LinearCost(), [0.8, 1.0, 1.5], seed)
    return [cost.seconds(SHAPE) for _ in range(count)]


def test_every_ratio_is_drawn_and_the_mean_is_kept() -> None:
    alone = LinearCost().seconds(SHAPE)
    assert {round(found / alone, 6) for found in drawn(0)} == {0.8, 1.0, 1.5}
    assert np.mean(drawn(0)) / alone == pytest.approx(1.1, rel=0.02)


def test_a_seed_decides() -> None:
    assert drawn(3, 50) == drawn(3, 50) != drawn(4, 50)
