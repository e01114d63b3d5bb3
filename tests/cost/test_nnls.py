import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.cost.nnls import nnls


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 40))
def test_it_is_as_good_as_scipys(seed: int, features: int, rows: int) -> None:
    from scipy.optimize import nnls as reference

    random = np.random.default_rng(seed)
    # Columns of very different sizes, as tokens and pairs of tokens are.
    given = random.random((rows, features)) * 10.0 ** random.integers(-3, 9, features)
    given *= random.random((rows, features)) < 0.8
    wanted = given @ (random.random(features) - 0.3) + random.normal(size=rows)
    found = nnls(given.T @ given, given.T @ wanted)
    assert (found >= 0).all()
    best = reference(given, wanted)[1]
    assert np.linalg.norm(given @ found - wanted) <= best * (1 + 1e-4) + 1e-6 * np.linalg.norm(
        wanted
    )


def test_a_feature_that_never_varied_gets_nothing() -> None:
    rows = np.array([[1.0, 0.0], [2.0, 0.0]])
    assert nnls(rows.T @ rows, rows.T @ np.array([3.0, 6.0])).round(6).tolist() == [3.0, 0.0]
