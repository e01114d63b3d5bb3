"""Margin, ramp and targets."""

import random
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pacing.made_jobs import GPU, cost_of

from chunkwise.pacing import ramp, targets
from chunkwise.pacing.margin import Margin
from chunkwise.pacing.ramp import Ramp


@given(st.lists(st.floats(0.0, 1.0), max_size=300))
def test_the_margin_stays_in_bounds(steps: list[float]) -> None:
    margin = Margin()
    for seconds in steps:
        margin.learn(seconds, 0.05)
        assert 0.0 <= margin.value <= 1.0
        assert 0.025 <= margin.within(0.05) <= 0.05


def test_with_a_tenth_of_noise_the_margin_settles_where_steps_are_rarely_late() -> None:
    rng = random.Random(3)
    margin = Margin()
    late = 0
    for step in range(60_000):
        seconds = margin.within(0.05) * rng.gauss(1.0, 0.1)
        late += seconds > 0.05 and step > 20_000
        margin.learn(seconds, 0.05)
    assert 0.2 < margin.value < 0.6
    assert late / 40_000 < 0.003


def test_steps_that_no_margin_could_save_teach_nothing() -> None:
    rng = random.Random(3)
    margin = Margin()
    for _ in range(20_000):
        predicted = margin.within(0.05)
        seconds = predicted * rng.gauss(1.0, 0.1)
        if rng.random() < 0.01:  # the machine did something else
            seconds += 0.06
        if margin.could_help(seconds, predicted):
            margin.learn(seconds, 0.05)
    assert 0.2 < margin.value < 0.6


def test_the_ramp_grows_carefully_and_shrinks_at_once() -> None:
    climb = Ramp()
    assert climb.most() == ramp.START
    climb.learn(256, 0.01, 0.05)
    assert climb.most() == 332
    climb.learn(100, 0.01, 0.05)  # too small to tell
    assert climb.most() == 332
    climb.learn(332, 0.045, 0.05)  # neither easy nor late
    assert climb.most() == 332
    climb.learn(332, 0.06, 0.05)
    assert climb.most() == 232


def test_once_known_the_largest_chunk_seen_bounds() -> None:
    climb = Ramp()
    for _ in range(ramp.ENOUGH):
        climb.learn(200, 0.049, 0.05)
    assert climb.done
    assert climb.most() == 260
    assert Ramp(largest=1000).most() == 1300


def test_an_expectation_predicts_at_once_and_grows_no_faster() -> None:
    climb = Ramp(expected=True)
    assert climb.done
    assert climb.most() == ramp.START
    climb.saw(4000)  # beside nobody
    climb.learn(256, 0.01, 0.05)
    assert climb.most() == 332
    for _ in range(ramp.ENOUGH):
        climb.learn(300, 0.045, 0.05)
    assert climb.most() == 5200


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 1)), max_size=100))
def test_the_ramp_always_lets_something_through(steps: list[tuple[int, float]]) -> None:
    climb = Ramp()
    for tokens, seconds in steps:
        climb.learn(tokens, seconds, 0.05)
        assert climb.most() >= ramp.LEAST


def test_a_target_nobody_can_keep_is_raised() -> None:
    least = targets.least(GPU, 1000)
    assert GPU.coefficients.fixed < least < 0.05


def test_no_target_means_twice_the_cheapest_chunk() -> None:
    # Per token: 0.01/t + 1e-5 + 1e-8 t/2: cheapest at sqrt(2 x 0.01 / 1e-8) = 1414 tokens.
    cost = cost_of(0.01, 0, 1e-5, 0, 1e-8, 0, 0)
    sizes = [64 * 2**power for power in range(8)]
    best = min(sizes, key=lambda size: (0.01 + 1e-5 * size + 5e-9 * size**2) / size)
    assert best == 1024
    expected = 2 * (0.01 + 1e-5 * best + 5e-9 * best**2)
    assert targets.implied(cost, 8192) == pytest.approx(expected)
    assert targets.implied(cost_of(0, 0, 0, 0, 0, 0, 0), 8192) == inf


def test_a_long_prompt_gets_three_times_its_own_time() -> None:
    assert targets.first_token(1.0, GPU, 100) == 1.0
    assert targets.first_token(1.0, GPU, 100_000) > 3.0
    assert targets.first_token(inf, GPU, 100_000) == inf
