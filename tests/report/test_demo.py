import pytest

from chunkwise.report.demo import _first_words, _sum


@pytest.mark.parametrize(
    ("chunks", "text"),
    [([40], "40"), ([256, 165], "256 + 165"), ([256] * 4 + [55], "4 x 256 + 55"), ([], "")],
)
def test_chunks_read_as_a_sum(chunks: list[int], text: str) -> None:
    assert _sum(chunks) == text


def test_answers_are_one_short_line() -> None:
    assert _first_words("  two\n lines ") == "two lines"
    assert _first_words("a" * 50, 10) == "a" * 9 + "…"
