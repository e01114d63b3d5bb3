import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.errors import UserMistake
from chunkwise.workload.arrivals import MOST_BINS, WINDOWS, ArrivalCollector, ArrivalSummary

gaps = st.lists(st.floats(0, 500, allow_subnormal=False), min_size=1, max_size=60)


def collected(arrivals: np.ndarray, cut: int | None = None) -> ArrivalSummary:
    collector = ArrivalCollector()
    for part in (arrivals,) if cut is None else (arrivals[:cut], arrivals[cut:]):
        collector.add(part)
    return collector.summary()


@given(gaps, st.integers(0, 60))
def test_batches_do_not_matter_and_windows_are_counted(steps: list[float], cut: int) -> None:
    arrivals = np.cumsum(steps)
    found = collected(arrivals, cut)
    whole = collected(arrivals)
    assert found.peaks == whole.peaks
    assert found.bins == whole.bins
    assert found.gap_squares == pytest.approx(whole.gap_squares)
    since = arrivals - arrivals[0]
    for window in WINDOWS:
        counts = np.unique(since // window, return_counts=True)[1]
        assert found.peaks[window] == counts.max()
    assert sum(found.bins) == len(steps)
    assert len(found.bins) <= MOST_BINS


def test_a_poisson_process_has_variation_one() -> None:
    found = collected(np.cumsum(np.random.default_rng(1).exponential(0.1, 100_000)))
    assert found.rate == pytest.approx(10, rel=0.02)
    assert found.variation == pytest.approx(1, rel=0.02)
    assert 1 < found.peak_to_mean(60) < found.peak_to_mean(10) < found.peak_to_mean(1)


def test_a_metronome_has_none() -> None:
    found = collected(np.arange(1000.0))
    assert found.variation == pytest.approx(0)


def test_all_at_once() -> None:
    found = collected(np.zeros(5))
    assert found.rate is None
    assert found.variation is None
    assert found.peak_to_mean(1) is None


def test_out_of_order_names_the_request_even_across_batches() -> None:
    with pytest.raises(UserMistake, match=r"Request 3 arrives 1\.500 s before"):
        collected(np.array([0.0, 2.0, 0.5, 9.0]))
    with pytest.raises(UserMistake, match="Request 3 arrives"):
        collected(np.array([0.0, 2.0, 0.5, 9.0]), cut=2)


@given(gaps, gaps)
def test_merged_traces_stand_one_after_another(a: list[float], b: list[float]) -> None:
    one, other = collected(np.cumsum(a)), collected(np.cumsum(b))
    both = one.merged(other)
    assert both.requests == len(a) + len(b)
    assert both.seconds == pytest.approx(one.seconds + other.seconds)
    assert both.gaps == len(a) + len(b) - 2
    assert sum(both.bins) == both.requests
    assert both.peaks == {w: max(one.peaks[w], other.peaks[w]) for w in WINDOWS}
    assert len(both.bins) <= MOST_BINS
