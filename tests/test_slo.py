import contextlib
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.errors import UserMistake
from chunkwise.slo import Slo, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("50ms", 0.05), ("1s", 1), (" 1.5 s ", 1.5), ("2m", 120), ("2min", 120), ("250us", 0.00025)],
)
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "50", "ms", "-1s", "1e3s", "1 day", "٣s", "1s2", "9" * 99])
def test_anything_else_is_a_sentence(text: str) -> None:
    with pytest.raises(UserMistake, match="such as 50ms"):
        parse_duration(text)


@given(st.text(max_size=50))
def test_no_text_raises_anything_else(text: str) -> None:
    with contextlib.suppress(UserMistake):
        assert parse_duration(text) >= 0


def test_a_promise_reads_well() -> None:
    assert str(Slo(ttft=1, itl=0.05, share=0.9)) == "TTFT 1.00s and ITL 50ms for 90% of requests"
    assert str(Slo()) == "no target for 99% of requests"


@pytest.mark.parametrize(
    "wrong", [{"ttft": 0}, {"itl": -1}, {"itl": nan}, {"share": 0}, {"share": 2}]
)
def test_an_impossible_promise_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserMistake):
        Slo(**wrong)


def test_nothing_promised_is_infinite() -> None:
    assert (Slo().ttft, Slo().itl) == (inf, inf)
