import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.report.terminal import bar, print_json, print_lines, print_table, progress


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 80))
def test_a_bar_fits_its_width(value: float, more: float, width: int) -> None:
    assert len(bar(value, value + more, width)) <= width
    assert bar(value, 0) == ""


def test_a_full_bar_is_full() -> None:
    assert bar(3, 3, 10) == "█" * 10
    assert bar(1.5, 3, 10) == "█" * 5


def test_markup_in_data_is_shown_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("[red]t[/red]", ["[b]c[/b]"], [["[link=x]d[/link]"]])
    print_lines(["[bold]e[/bold]"])
    shown = capsys.readouterr().out
    for text in ("[red]t[/red]", "[b]c[/b]", "[link=x]d[/link]", "[bold]e[/bold]"):
        assert text in shown


def test_json_is_one_object_and_progress_is_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as say:
        say("[working]", 0.5)
    print_json("x", {"a": 1})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"schema": "chunkwise.x/1", "a": 1}
    assert "[working]" in captured.err
