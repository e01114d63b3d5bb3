"""What ejects the pacer, and what does not."""

from chunkwise.pacing import watchdog
from chunkwise.pacing.watchdog import Watchdog


def test_one_that_is_passed_by() -> None:
    dog, found = Watchdog(), None
    for step in range(2000):
        found = dog.look(step * 0.1, "victim", 500, others=64)
        if found:
            break
    assert found is not None
    assert "passed by" in found
    assert step * 0.1 > watchdog.BOUND


def test_progress_a_new_oldest_or_nobody_served_is_no_reason() -> None:
    dog = Watchdog()
    for step in range(3000):
        assert dog.look(step * 0.1, "a", 500 - step // 100, others=64) is None
    for step in range(3000, 6000):
        assert dog.look(step * 0.1, f"r{step // 100}", 500, others=64) is None
    for step in range(6000, 9000):
        assert dog.look(step * 0.1, "kv", 500, others=0) is None
    assert dog.look(900.0, None, 0, others=0) is None


def test_a_decode_that_gets_nothing() -> None:
    dog, found = Watchdog(), None
    for step in range(2000):
        assert dog.look(step * 0.1, None, 0, 0, (step,)) is None
    for step in range(2000, 4000):
        found = dog.look(step * 0.1, None, 0, 0, (7, step))
        if found:
            break
    assert found is not None
    assert "no token" in found


def test_a_clock_that_goes_back() -> None:
    dog = Watchdog()
    assert dog.look(5.0, None, 0, 0) is None
    assert dog.look(4.0, None, 0, 0) == "the clock went backwards"


def test_predictions_that_stay_far_off() -> None:
    for factor in (0.1, 10.0):
        dog = Watchdog()
        found = [dog.predicted(0.05 * factor, 0.05) for _ in range(300)]
        assert found[50] is None
        assert found[-1] == "its predictions stay far off"
    dog = Watchdog()
    for step in range(5000):  # a burst of other work on the machine, now and then
        assert dog.predicted(0.05, 0.5 if step % 50 == 0 else 0.055) is None
    assert dog.predicted(0.0, 0.05) is None
