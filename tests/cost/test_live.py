"""The live fit on steps that a real engine took (see tests/data/README.md)."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cost.test_fitted import SHAPES, WHERE

from chunkwise.cost.fitted import TERMS, Coefficients, FittedCost, TimedStep, fit
from chunkwise.cost.live import LiveCost
from chunkwise.cost.step import StepShape

RECORDED = Path(__file__).parent.parent / "data" / "steps_timing_30m.json"
Floats = np.ndarray


@pytest.fixture(scope="module")
def runs() -> list[list[TimedStep]]:
    """Three runs: one mix, another, and the first again."""
    return [
        [
            TimedStep(
                StepShape.of([(tokens, context) for tokens, context in chunks]).with_decodes(
                    decodes, decode_context
                ),
                seconds,
            )
            for chunks, decodes, decode_context, seconds in run
        ]
        for run in json.loads(RECORDED.read_text())
    ]


@pytest.fixture(scope="module")
def batch(runs: list[list[TimedStep]]) -> FittedCost:
    return fit([step for run in runs for step in run], WHERE)


def feed(cost: LiveCost, steps: list[TimedStep], factor: float = 1.0) -> Floats:
    """Let it predict each step, then see it; return the relative errors."""
    off = []
    for step in steps:
        off.append(abs(cost.seconds(step.shape) / (factor * step.seconds) - 1))
        cost.update(step.shape, factor * step.seconds)
    return np.array(off)


def test_from_nothing_it_is_near_the_batch_fit_within_200_steps(
    runs: list[list[TimedStep]], batch: FittedCost
) -> None:
    off = feed(LiveCost(WHERE), [step for run in runs for step in run])
    assert np.median(off[200:]) <= 2 * batch.error.p50


def test_from_a_saved_calibration_within_30(runs: list[list[TimedStep]], batch: FittedCost) -> None:
    off = feed(LiveCost(WHERE, fit(runs[0], WHERE)), runs[1])
    assert np.median(off[30:130]) <= 2 * batch.error.p50
    assert np.median(off[:30]) <= 3 * batch.error.p50


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_when_the_machine_changes_it_recovers_within_300(
    runs: list[list[TimedStep]], batch: FittedCost, factor: float
) -> None:
    cost = LiveCost(WHERE)
    feed(cost, runs[0] + runs[1])
    off = feed(cost, runs[2] + runs[0], factor)
    assert np.median(off[:5]) > 0.3  # a surprise at first
    assert np.median(off[300:]) <= 2 * batch.error.p50


def test_a_single_hiccup_changes_little(runs: list[list[TimedStep]]) -> None:
    cost = LiveCost(WHERE)
    feed(cost, runs[0])
    before = [cost.seconds(step.shape) for step in runs[1]]
    step = runs[0][-1]
    cost.update(step.shape, 100 * step.seconds)
    after = [cost.seconds(step.shape) for step in runs[1]]
    assert after == pytest.approx(before, rel=0.05)


@given(st.lists(st.tuples(SHAPES, st.floats(1e-6, 10)), max_size=120))
def test_whatever_it_sees_it_stays_bounded(steps: list[tuple[StepShape, float]]) -> None:
    cost = LiveCost(WHERE)
    for shape, seconds in steps:
        cost.update(shape, seconds)
        found = [getattr(cost.coefficients, name) for name in TERMS]
        assert all(0 <= value < 1e6 for value in found)
    for shape, _ in steps:
        assert cost.covers(shape)
        assert cost.seconds(shape) <= cost.seconds(shape.with_chunk(10, 10))
    assert cost.steps == sum(bool(shape.tokens) for shape, _ in steps)


def test_nothing_seen_nothing_claimed() -> None:
    cost = LiveCost(WHERE)
    assert cost.error is None
    assert not cost.covers(StepShape.of([(1, 0)]))
    cost.update(StepShape(), 1.0)
    cost.update(StepShape.of([(1, 0)]), 0.0)
    assert cost.steps == 0
    cost.update(StepShape.of([(8, 0)]), 0.01)
    assert cost.error is not None
    assert cost.error.steps == 1
    assert cost.largest_chunk(StepShape(), 1.0, 0, 64) == 64


def test_what_was_learned_can_be_kept_and_started_from() -> None:
    rng = np.random.default_rng(2)
    learned = LiveCost(WHERE)
    shapes = [
        StepShape.of([(int(rng.integers(1, 900)), int(rng.integers(0, 9000)))], [500] * int(n))
        for n in rng.integers(0, 40, 400)
    ]
    truth = Coefficients(6e-3, 2e-3, 2.5e-5, 0.0, 4e-9, 4e-5, 1e-8)
    for shape in shapes:
        learned.update(shape, truth.seconds(shape))
    again = LiveCost(WHERE, learned.fitted())
    for shape in shapes[:50]:
        assert again.seconds(shape) == pytest.approx(learned.seconds(shape))
        assert again.seconds(shape) == pytest.approx(truth.seconds(shape), rel=0.1)
        again.update(shape, truth.seconds(shape))
    for shape in shapes[50:100]:
        assert again.seconds(shape) == pytest.approx(truth.seconds(shape), rel=0.1)


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_an_expectation_is_soon_corrected(batch: FittedCost, factor: float) -> None:
    rng = np.random.default_rng(3)
    cost = LiveCost(WHERE, batch, measured=False)
    off = []
    for decodes in rng.integers(1, 40, 80).tolist():
        shape = StepShape.of([(int(rng.integers(16, 900)), 0)], [500] * decodes)
        took = factor * batch.seconds(shape)
        off.append(abs(cost.seconds(shape) / took - 1))
        cost.update(shape, took)
    assert np.median(off[20:]) < 0.1
    if factor == 1.0:
        assert max(off) < 0.01
