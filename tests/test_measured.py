import itertools
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.durations import say
from chunkwise.errors import UserMistake
from chunkwise.measured import Measured, quantile
from chunkwise.slo import Slo

waits = st.lists(st.floats(0, 100, allow_subnormal=False), max_size=12)


@st.composite
def runs(draw: st.DrawFn) -> Measured:
    """Requests with any number of tokens, none included."""
    requests = draw(st.lists(st.tuples(st.floats(0, 1000), waits, st.integers(0, 9)), max_size=8))
    return Measured.of(
        arrival=[arrival for arrival, _, _ in requests],
        tokens=[(arrival + np.cumsum(gaps)).tolist() for arrival, gaps, _ in requests],
        prompt_tokens=[prompt for _, _, prompt in requests],
        classes=[f"class {prompt % 2}" for _, _, prompt in requests],
    )


def split(run: Measured) -> list[list[float]]:
    """The token times of each request, by plain Python."""
    ends = np.cumsum(run.token_counts)
    return [
        run.token_times[e - n : e].tolist() for e, n in zip(ends, run.token_counts, strict=True)
    ]


def test_two_requests_by_hand() -> None:
    run = Measured.of([10.0, 0.0], [[10.5, 10.6, 12.6, 12.7], [1.0]], [5, 9])
    assert run.ttft.tolist() == [0.5, 1.0]
    assert run.gaps == pytest.approx([0.1, 2.0, 0.1])
    assert run.gap_ends == pytest.approx([10.6, 12.6, 12.7])
    assert run.worst_gap == pytest.approx([2.0, 0.0])
    assert run.end_to_end == pytest.approx([2.7, 1.0])
    assert run.time_per_output_token[0] == pytest.approx(2.2 / 3)
    assert np.isnan(run.time_per_output_token[1])
    assert run.stall_seconds(0.5) == pytest.approx([1.5, 0.0])
    assert run.seconds == pytest.approx(12.7)
    assert run.output_tokens_per_second == pytest.approx(5 / 12.7)
    assert run.goodput_share(Slo(ttft=0.7, itl=inf)) == 0.5
    assert run.goodput_share(Slo(ttft=5, itl=1)) == 0.5
    assert run.goodput_share(Slo()) == 1


@given(runs())
def test_columns_agree_with_a_loop(run: Measured) -> None:
    for index, times in enumerate(split(run)):
        gaps = [b - a for a, b in itertools.pairwise(times)]
        if times:
            assert run.ttft[index] == times[0] - run.arrival[index]
            assert run.end_to_end[index] == times[-1] - run.arrival[index]
        else:
            assert np.isnan(run.ttft[index])
            assert np.isnan(run.end_to_end[index])
        assert run.worst_gap[index] == max(gaps, default=0)
        assert run.gap_quantile(0.5)[index] == sorted(gaps)[(len(gaps) - 1) // 2] if gaps else True
        stalls = sum(max(0.0, gap - 1.0) for gap in gaps)
        assert run.stall_seconds(1.0)[index] == pytest.approx(stalls)
    assert len(run.gaps) == sum(max(0, len(times) - 1) for times in split(run))


@given(runs())
def test_parts_are_the_whole(run: Measured) -> None:
    quartiles = run.by_prompt_quartile()
    assert sum(map(len, quartiles)) == len(run)
    assert sum(len(part) for part in run.by_class().values()) == len(run)
    ends = [part.prompt_tokens for part in quartiles if len(part)]
    for shorter, longer in itertools.pairwise(ends):
        assert shorter.max() <= longer.min()
    slo = Slo(ttft=50, itl=50)
    good = sum(part.good(slo).sum() for part in run.by_class().values())
    assert good == run.good(slo).sum()
    assert sorted(np.concatenate([part.gaps for part in quartiles])) == sorted(run.gaps)


@given(runs(), st.floats(0.001, 200), st.floats(0.001, 200))
def test_a_longer_target_is_never_harder(run: Measured, one: float, two: float) -> None:
    short, long = sorted((one, two))
    assert run.goodput_share(Slo(short, short)) <= run.goodput_share(Slo(long, long))


def test_who_never_got_a_token_was_not_served_well() -> None:
    run = Measured.of([0.0, 0.0], [[], [1.0]])
    assert run.good(Slo()).tolist() == [False, True]


def test_nothing_happened() -> None:
    run = Measured.of([], [])
    assert (len(run), run.seconds, run.goodput_share(Slo())) == (0, 0, 0)
    assert run.by_class() == {}


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60), st.sampled_from([0.1, 0.5, 0.99]))
def test_a_quantile_lies_in_its_interval(values: list[float], q: float) -> None:
    found = quantile(np.array([nan, *values]), q)
    assert found.value == np.quantile(values, q)
    assert found.low <= found.high
    for end in (found.low, found.high):
        assert end in values or not np.isfinite(end)
    # Asked for with less confidence, it is no wider.
    less = quantile(np.array(values), q, confidence=0.5)
    assert found.low <= less.low
    assert less.high <= found.high


def test_a_quantile_is_held_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    found = [quantile(rng.exponential(size=80), 0.5) for _ in range(300)]
    assert np.mean([one.low <= np.log(2) <= one.high for one in found]) >= 0.93


def test_few_values_leave_the_tail_open() -> None:
    values = np.arange(100.0)
    assert quantile(values, 0.99).high == inf
    assert quantile(np.arange(1000.0), 0.99).high < 1000
    empty = quantile(np.array([nan]), 0.5)
    assert (empty.low, empty.high) == (-inf, inf)
    assert np.isnan(empty.value)


@pytest.mark.parametrize(
    ("arrival", "tokens", "words"),
    [
        ([1.0], [[0.5]], "backwards"),
        ([0.0], [[2.0, 1.0]], "backwards"),
        ([nan], [[1.0]], "not a number"),
        ([0.0], [[inf]], "not a number"),
        ([0.0, 1.0], [[1.0]], "differ in length"),
    ],
)
def test_impossible_times_are_refused(
    arrival: list[float], tokens: list[list[float]], words: str
) -> None:
    with pytest.raises(UserMistake, match=words):
        Measured.of(arrival, tokens)


def test_token_counts_must_add_up() -> None:
    with pytest.raises(UserMistake, match="add up"):
        Measured(np.zeros(1), np.zeros(1, np.int64), np.ones(1, np.int64), np.zeros(2))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.0004, "0ms"), (0.05, "50ms"), (0.0996, "0.10s"), (1, "1.00s"), (61, "61.0s")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert say(seconds) == text
