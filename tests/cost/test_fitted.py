"""The batch fit: what it recovers, what it refuses to know, and the largest chunk."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.cost.fitted import (
    CONTEXT_TERMS,
    TERMS,
    Coefficients,
    TimedStep,
    errors,
    fit,
)
from chunkwise.cost.step import Provenance, StepShape
from chunkwise.errors import UserMistake

WHERE = Provenance("calibration", "m", "d")
TRUTH = Coefficients(0.004, 0.001, 2e-5, 2e-4, 1e-9, 1e-4, 3e-8)
SHAPES = st.builds(
    StepShape.of,
    st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 32_768)), max_size=3),
    st.lists(st.integers(1, 32_768), max_size=12),
)
COST = st.builds(
    Coefficients,
    *(
        st.sampled_from([0.0, scale / 7, scale])
        for scale in (5e-3, 1e-3, 2e-5, 2e-4, 1e-9, 1e-4, 1e-8)
    ),
)


def steps(count: int, noise: float = 0.0, seed: int = 0) -> list[TimedStep]:
    random = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        chunks = [
            (int(random.integers(1, 1024)), int(random.integers(0, 8192)))
            for _ in range(random.integers(0, 3))
        ]
        shape = StepShape.of(chunks, random.integers(1, 4096, random.integers(1, 32)).tolist())
        late = 1 + noise * random.exponential()
        made.append(TimedStep(shape, TRUTH.seconds(shape) * late))
    return made


def test_costs_are_recovered() -> None:
    found = fit(steps(300), WHERE)
    for name in TERMS:
        assert getattr(found.coefficients, name) == pytest.approx(getattr(TRUTH, name), rel=0.01)
    assert found.error.p99 < 0.01
    assert found.error.steps <= 300


def test_a_few_late_steps_do_not_count() -> None:
    late = [
        TimedStep(step.shape, step.seconds * (5 if index % 12 == 0 else 1))
        for index, step in enumerate(steps(400))
    ]
    found = fit(late, WHERE)
    assert np.median(np.abs(errors(found, steps(200, seed=1)[1:]))) < 0.02
    # ... to the price; what they took is not lost.
    assert np.mean(found.scatter) == pytest.approx(1 + 4 / 12, rel=0.05)
    assert np.median(found.scatter) == pytest.approx(1, rel=0.02)


def test_terms_the_source_cannot_tell_are_priced_at_nothing_and_said() -> None:
    found = fit(steps(300), WHERE, unknown=CONTEXT_TERMS)
    assert found.coefficients.pair == found.coefficients.decode_context == 0
    assert found.unknown == CONTEXT_TERMS


def test_it_says_what_it_has_not_seen() -> None:
    found = fit([TimedStep(StepShape.of([(100 + n, 50)], [9]), 0.01) for n in range(50)], WHERE)
    assert found.covers(StepShape.of([(149, 50)], [9]))
    assert not found.covers(StepShape.of([(150, 50)], [9]))
    assert not found.covers(StepShape.of([(20, 5000)], [9]))
    assert not found.covers(StepShape.of([(100, 0)], [9, 1]))


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(UserMistake, match="record for longer"):
        fit(steps(29), WHERE)


@given(COST, SHAPES, st.floats(0, 0.2), st.integers(0, 32_768))
def test_the_largest_chunk_agrees_with_trying_every_size(
    cost: Coefficients, shape: StepShape, allowance: float, context: int
) -> None:
    fits = [
        tokens
        for tokens in range(1, 401)
        if cost.seconds(shape.with_chunk(tokens, context)) <= allowance
    ]
    assert cost.largest_chunk(shape, allowance, context, 400) == max(fits, default=0)


@given(COST, SHAPES, st.integers(1, 4096), st.integers(0, 32_768))
def test_more_work_never_takes_less(
    cost: Coefficients, shape: StepShape, tokens: int, context: int
) -> None:
    assert cost.seconds(shape) <= cost.seconds(shape.with_chunk(tokens, context))
    assert cost.seconds(shape) <= cost.seconds(shape.with_decode(context))
    deep = cost.seconds(shape.with_chunk(tokens, context + 1))
    assert cost.seconds(shape.with_chunk(tokens, context)) <= deep


def test_an_empty_step_takes_nothing() -> None:
    assert TRUTH.seconds(StepShape()) == 0
