import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.cost.curves import Curve, CurveSum, levelled

POINTS = st.lists(
    st.tuples(st.integers(0, 10**6), st.floats(0, 1)), min_size=2, unique_by=lambda point: point[0]
).map(sorted)


@given(POINTS, st.floats(0, 2e6), st.floats(0, 1e6))
def test_a_curve_never_falls_whatever_the_table(
    points: list[tuple[int, float]], x: float, more: float
) -> None:
    curve = Curve(*zip(*points, strict=True))
    assert curve(x) <= curve(x + more) * (1 + 1e-9) + 1e-9


@given(POINTS)
def test_a_curve_is_the_table_where_that_does_not_fall(points: list[tuple[int, float]]) -> None:
    values = sorted(value for _, value in points)
    curve = Curve([x for x, _ in points], values)
    for (x, _), value in zip(points, values, strict=True):
        assert curve(x) == pytest.approx(value, abs=1e-9)


def test_a_sum_of_curves_is_recovered() -> None:
    random = np.random.default_rng(0)
    sums = random.random((300, 2)) * [1000, 1e6]
    truth = 0.5 + np.minimum(sums[:, 0], 200) * 0.01 + sums[:, 1] * 1e-6
    fitted = CurveSum.fit(sums, truth, 1 / truth, ((0, 200), (0, 1e5)))
    near = np.array([fitted(*pair) for pair in sums])
    assert np.abs(near / truth - 1).max() < 1e-6


def test_a_lone_peak_does_not_lift_what_follows() -> None:
    found = levelled([14.0, 9.1, 9.7, 9.4, 10.0, 8.9, 11.2])
    assert found == sorted(found)
    assert max(found[:6]) < 10.5
    assert found[-1] == 11.2
    assert levelled([1.0, 2.0, 2.0, 5.0]) == [1.0, 2.0, 2.0, 5.0]
