import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.durations import say
from chunkwise.measured import TokenTimes

gaps = st.lists(st.floats(0, 100), max_size=20)


def test_a_request_by_hand() -> None:
    times = TokenTimes(arrival=10.0, tokens=(10.5, 10.6, 12.6, 12.7))
    assert times.ttft == 0.5
    assert times.gaps == pytest.approx((0.1, 2.0, 0.1))
    assert times.worst_gap == pytest.approx(2.0)
    assert times.end_to_end == pytest.approx(2.7)


@given(st.floats(0, 1e6), st.floats(0, 100), gaps)
def test_the_parts_add_up(arrival: float, ttft: float, waits: list[float]) -> None:
    tokens = [arrival + ttft]
    for wait in waits:
        tokens.append(tokens[-1] + wait)
    times = TokenTimes(arrival, tuple(tokens))
    assert times.ttft + sum(times.gaps) == pytest.approx(times.end_to_end, abs=1e-6)
    assert times.worst_gap == max(times.gaps, default=0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.0004, "0ms"), (0.05, "50ms"), (0.0996, "0.10s"), (1, "1.00s"), (61, "61.0s")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert say(seconds) == text
