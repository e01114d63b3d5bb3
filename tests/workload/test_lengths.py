import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.workload import lengths as module
from chunkwise.workload.lengths import (
    EDGES,
    LARGEST,
    THRESHOLDS,
    LengthCollector,
    LengthSummary,
)

some_lengths = st.lists(st.integers(0, 100_000) | st.integers(0, LARGEST), max_size=80)
QS = (0.5, 0.9, 0.95, 0.99, 1.0)


def summarised(*parts: list[int]) -> LengthSummary:
    collector = LengthCollector()
    for part in parts:
        collector.add(np.asarray(part, dtype=np.int64))
    return collector.summary()


@given(some_lengths, some_lengths)
def test_merging_equals_summarising_both(a: list[int], b: list[int]) -> None:
    assert summarised(a).merged(summarised(b)) == summarised(a + b) == summarised(a, b)


@given(some_lengths)
def test_all_figures_against_a_plain_count(lengths: list[int]) -> None:
    found = summarised(lengths)
    assert (found.count, found.total) == (len(lengths), sum(lengths))
    assert found.largest == max(lengths, default=0)
    for threshold in THRESHOLDS:
        above = [n for n in lengths if n > threshold]
        assert found.above[threshold] == (len(above), sum(above))
    for index, count in found.histogram.items():
        assert count == sum(EDGES[index] <= n < EDGES[index + 1] for n in lengths)
    assert sum(found.histogram.values()) == len(lengths)
    ordered = sorted(lengths)
    for q in QS if lengths else ():
        value = found.quantile(q)
        # The smallest length that at least a share q do not exceed.
        assert sum(n <= value for n in ordered) >= q * len(ordered) - 1e-6
        assert sum(n < value for n in ordered) < q * len(ordered)
    assert found.share_above(7) == (sum(n > 7 for n in lengths) / len(lengths) if lengths else 0)


@given(some_lengths)
def test_survives_a_file(lengths: list[int]) -> None:
    found = summarised(lengths)
    assert LengthSummary.model_validate_json(found.model_dump_json()) == found


@pytest.fixture
def few_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VALUES", 64)


def ranks_off(found: LengthSummary, lengths: np.ndarray) -> float:
    ordered = np.sort(lengths)
    worst = 0.0
    for q in (0.5, 0.9, 0.95, 0.99):
        low = np.searchsorted(ordered, found.quantile(q), side="left") / len(ordered)
        high = np.searchsorted(ordered, found.quantile(q), side="right") / len(ordered)
        worst = max(worst, low - q, q - high)
    return worst


@pytest.mark.usefixtures("few_values")
def test_many_values_become_a_sketch_within_its_bound() -> None:
    rng = np.random.default_rng(0)
    parts = [np.minimum(rng.lognormal(7, 1.5, 40_000).astype(np.int64), LARGEST) for _ in range(4)]
    everything = np.concatenate(parts)
    whole = summarised(*(part.tolist() for part in parts))
    merged = summarised(parts[0].tolist())
    for part in parts[1:]:
        merged = merged.merged(summarised(part.tolist()))
    for found in (whole, merged):
        assert not found.exact
        assert 0 < found.rank_error < 0.003
        assert ranks_off(found, everything) <= found.rank_error
        # Everything but the quantiles stays exact.
        assert found.count == len(everything)
        assert found.total == everything.sum()
        assert found.largest == everything.max() == found.quantile(1)
        assert found.above[2048][0] == (everything > 2048).sum()
    assert whole.histogram == merged.histogram


@pytest.mark.usefixtures("few_values")
def test_a_table_joins_a_sketch_with_its_weights() -> None:
    heavy = summarised([5] * 3_000_000 + [7])
    light = summarised(list(range(1000)))
    assert heavy.exact
    assert not light.exact
    for merged in (heavy.merged(light), light.merged(heavy)):
        assert merged.count == 3_001_001
        assert merged.quantile(0.5) == 5
        assert merged.share_above(900) < 0.003


def test_samples_follow_the_lengths() -> None:
    found = summarised([10] * 90 + [1000] * 10)
    drawn = found.sample(np.random.default_rng(0).random(10_000))
    assert set(drawn.tolist()) == {10, 1000}
    assert (drawn == 1000).mean() == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize(
    "change",
    [
        {"counts": [1]},
        {"values": [2, 1], "counts": [1, 1]},
        {"values": None, "counts": None},
        {"above": {}},
        {"histogram": {999: 1}},
        {"count": 10**11},
    ],
)
def test_a_file_that_does_not_add_up_is_refused(change: dict[str, object]) -> None:
    good = summarised([1, 2]).model_dump()
    with pytest.raises(ValueError, match="validation error"):
        LengthSummary.model_validate({**good, **change})


@pytest.mark.usefixtures("few_values")
def test_samples_follow_a_sketch_too() -> None:
    lengths = np.random.default_rng(4).lognormal(7, 1, 30_000).astype(np.int64)
    found = summarised(lengths.tolist())
    assert not found.exact
    drawn = found.sample(np.random.default_rng(5).random(30_000))
    for q in (0.1, 0.5, 0.9, 0.99):
        assert np.quantile(drawn, q) == pytest.approx(np.quantile(lengths, q), rel=0.06)
