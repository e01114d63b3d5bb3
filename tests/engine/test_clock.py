import pytest

from chunkwise.engine import clock


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found = [0.0]
    monkeypatch.setattr(clock, "now", lambda: found[0])
    return found


def test_one_batch_at_a_time(now: list[float]) -> None:
    steps = clock.StepClock()
    now[0] = 5.0
    steps.scheduled("a", 1)
    assert steps.ended("a", 5.5) == (0.5, 1)
    now[0] = 7.0  # idle in between: not part of any step
    steps.scheduled("b", 2)
    assert steps.ended("b", 7.25) == (0.25, 2)


def test_two_in_flight_do_not_count_twice(now: list[float]) -> None:
    steps = clock.StepClock()
    steps.scheduled("a", 1)
    now[0] = 0.1
    steps.scheduled("b", 2)
    assert steps.ended("a", 1.0) == (1.0, 1)
    assert steps.ended("b", 1.5) == (0.5, 2)


def test_one_whose_result_never_came_is_passed_over(now: list[float]) -> None:
    steps = clock.StepClock()
    steps.scheduled("lost", 1)
    steps.scheduled("b", 2)
    assert steps.ended("b", 1.0) == (1.0, 2)
    assert steps.ended("unknown", 2.0) is None


def test_time_never_runs_backwards(now: list[float]) -> None:
    steps = clock.StepClock()
    now[0] = 9.0
    steps.scheduled("a", 1)
    assert steps.ended("a", 3.0) == (0.0, 1)
