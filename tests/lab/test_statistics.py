"""What a comparison claims, and what it must not."""

from math import inf, log

import numpy as np
import pytest
from benchmarks.compare_power import RECORDED, claims, simulated
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.made_runs import TWIN, asked, rounds, run

from chunkwise.lab import runs as files
from chunkwise.lab.statistics import Comparison, Effect, compare, holm, interval, lagged, p_value


def effect(found: Comparison, key: str, arm: str = "arm") -> Effect:
    return next(one for one in found.of(arm) if one.metric.key == key)


def test_a_slower_arm_is_called_worse() -> None:
    found = compare(asked("arm"), rounds(8, arm=1.3))
    for key in ("ttft_p50", "ttft_p99", "gap_p99", "worst_gap", "tpot_p50", "end_to_end_mean"):
        one = effect(found, key)
        assert one.verdict == "worse", key
        assert one.low < log(1.3) < one.high
        assert one.value / one.baseline_value == pytest.approx(one.shown[0])
    assert effect(found, "stalled").verdict in ("worse", "alike")
    assert found.arms == ("arm",)
    assert found.rounds == 8


def test_a_faster_arm_is_called_better() -> None:
    found = compare(asked("arm"), rounds(8, arm=0.7))
    assert effect(found, "ttft_p99").verdict == "better"
    assert effect(found, "ttft_mean:long").verdict == "better"


def test_equal_arms_are_alike_and_narrow() -> None:
    found = compare(asked("arm"), rounds(10, noise=0.01, arm=1.0))
    assert {one.verdict for one in found.effects} <= {"alike", "unclear"}
    assert effect(found, "ttft_p50").verdict == "alike"
    assert found.narrow_enough


def test_noise_is_called_noise() -> None:
    found = compare(asked("arm"), rounds(6, noise=0.5, arm=1.1))
    assert {one.verdict for one in found.effects if one.metric.as_ratio} <= {"unclear", "alike"}
    assert not found.narrow_enough


def test_nothing_is_claimed_below_the_noise_floor() -> None:
    """The twin is as far away as the arm: so that is what equal servers differ by."""
    runs = [run("default", n, 1.0, 0.005) for n in range(10)]
    runs += [run(TWIN, n, 1.2, 0.005) for n in range(10)]
    runs += [run("arm", n, 1.2, 0.005) for n in range(10)]
    found = compare(asked("arm"), runs)
    one = effect(found, "gap_p99")
    assert one.corrected_p < 0.01
    assert one.floor > log(1.2)
    assert all(one.verdict not in ("better", "worse") for one in found.effects)


def test_every_claim_clears_both() -> None:
    found = compare(asked("a", "b"), rounds(7, noise=0.05, a=1.1, b=0.8))
    for one in found.effects:
        if one.verdict in ("better", "worse"):
            assert one.corrected_p < 0.05
            assert min(abs(one.low), abs(one.high)) > one.floor
            assert one.low * one.high > 0
    assert len(found.effects) == 2 * len(found.metrics)
    smallest = min(found.effects, key=lambda one: one.p)
    assert smallest.corrected_p == pytest.approx(min(1, smallest.p * len(found.effects)))


def test_only_rounds_that_both_have_are_paired() -> None:
    runs = rounds(6, arm=1.3)
    dropped = [one for one in runs if (one.arm, one.round) not in {("arm", 1), ("default", 4)}]
    found = compare(asked("arm"), dropped)
    assert effect(found, "gap_p99").rounds == 4
    assert found.rounds == 4
    again = compare(asked("arm"), [one for one in runs if one.round not in (1, 4)])
    assert effect(found, "gap_p99").estimate == pytest.approx(effect(again, "gap_p99").estimate)


def test_too_few_rounds_claim_nothing() -> None:
    for count in (0, 1, 4):
        found = compare(asked("arm"), rounds(count, noise=0.001, arm=2.0))
        assert {one.verdict for one in found.effects} == {"unclear"}
        assert found.rounds == count
    assert not compare(asked("arm"), rounds(1, arm=2.0)).narrow_enough


def test_the_baseline_alone_with_its_twin() -> None:
    found = compare(asked(), rounds(5))
    assert found.effects == ()
    assert not found.narrow_enough


def test_where_requests_fail_only_goodput_is_comparable() -> None:
    runs = [
        run(arm, n, 0.5 if arm == "arm" else 1.0, failed={"timed out": 8} if arm == "arm" else {})
        for n in range(6)
        for arm in ("default", TWIN, "arm")
    ]
    found = compare(asked("arm"), runs)
    assert {one.verdict for one in found.effects if one.metric.key != "goodput"} == {"failed"}
    good = effect(found, "goodput")
    assert good.verdict != "failed"
    assert good.value <= 24 / 32
    assert next(one for one in found.conditions if one.arm == "arm").failed == 48


def test_a_late_client_is_marked() -> None:
    assert not lagged(run("a", 0, lag=np.full(24, 0.005)))
    assert lagged(run("a", 0, lag=np.full(24, 0.100)))
    late = [run("default", 0, lag=np.full(24, 0.2)), run("default", 1)]
    condition = compare(asked(), late).conditions[0]
    assert condition.lagged == (0,)
    assert condition.lag_p99 == pytest.approx(0.2)


def test_without_a_promise_there_is_no_goodput() -> None:
    keys = {one.key for one in compare(asked("arm", promise=None), rounds(5, arm=1.0)).metrics}
    assert not keys & {"goodput", "stalled"}
    keys = {one.key for one in compare(asked(promise={"ttft": 1, "itl": None}), []).metrics}
    assert "goodput" in keys
    assert "stalled" not in keys


def test_identical_runs_are_no_difference() -> None:
    same = [run("x", n, 1.0, 0.0) for n in range(6)]
    runs = [
        type(one)(arm, *list(vars(one).values())[1:])
        for one in same
        for arm in ("default", TWIN, "arm")
    ]
    found = compare(asked("arm"), runs)
    assert {one.verdict for one in found.effects} == {"alike"}
    assert {one.half_width for one in found.effects} == {0.0}


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_holm_keeps_the_order_and_never_helps(p: list[float]) -> None:
    corrected = holm(p)
    assert all(before <= after <= 1 for before, after in zip(p, corrected, strict=True))
    order = np.argsort(p, kind="stable")
    assert (np.diff(np.array(corrected)[order]) >= 0).all()
    assert min(corrected) == pytest.approx(min(1, min(p) * len(p)))


@settings(max_examples=25)
@given(st.lists(st.floats(-2, 2), min_size=2, max_size=14))
def test_an_interval_holds_its_mean(values: list[float]) -> None:
    differences = np.array(values)
    low, high = interval(differences)
    assert low <= differences.mean() + 1e-12
    assert high >= differences.mean() - 1e-12
    assert 0 <= p_value(differences) <= 1
    assert interval(-differences) == pytest.approx((-high, -low), abs=0.05)


def test_one_round_has_no_interval() -> None:
    assert interval(np.array([0.3])) == (-inf, inf)
    assert p_value(np.array([0.3])) == 1.0


def test_intervals_hold_as_often_as_they_say() -> None:
    """Within what 200 draws can tell from 95%."""
    rng = np.random.default_rng(3)
    for count in (5, 8):
        ends = [interval(rng.normal(size=count)) for _ in range(200)]
        assert np.mean([low <= 0 <= high for low, high in ends]) >= 0.91


@pytest.mark.slow
def test_recorded_servers_equal_and_slower() -> None:
    """A smaller form of benchmarks/compare_power.py."""
    _, recorded = files.read(RECORDED)
    assert [claims(simulated(recorded, seed)) for seed in range(2)] == [set(), set()]
    found = [claims(simulated(recorded, seed, slower=1.15)) for seed in range(2)]
    assert found == [{"worse"}, {"worse"}]
