from pathlib import Path

import pytest
from tests.captures import life, write

from chunkwise.readers.capture import captures
from chunkwise.readers.picture import Picture
from chunkwise.report.observe import cause_rows, facts, gap_lines, say_fine, step_rows
from chunkwise.report.observe_html import text

MEAN = "<script>alert(1)</script>"


@pytest.fixture
def picture(tmp_path: Path) -> Picture:
    write(tmp_path, life(), model=MEAN)
    return Picture.of(captures(tmp_path), itl=0.05)


def test_the_costliest_cause_comes_first(picture: Picture) -> None:
    rows = cause_rows(picture)
    assert rows[0][:4] == ["long step: prefill beside it", "2", "0.40s", "49%"]
    assert gap_lines(picture)[0].startswith("4 of 8 gaps (50.00%) are over 50ms")
    assert [row[0] for row in step_rows(picture)] == [
        "decodes only",
        "prefill and decodes",
        "prefill only",
    ]


def test_facts_are_plain(picture: Picture) -> None:
    import json

    assert json.loads(json.dumps(facts(picture)))["requests"] == 2


def test_a_page_of_two_runs(picture: Picture) -> None:
    page = text([picture, picture])
    body = page[page.index("<body>") :]
    assert MEAN not in body
    assert body.count('id="chart-') == len(set(body.split('id="chart-')[1:])) == 4
    assert "chart-steps-of-run-2" in body


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.00002, "20µs"), (0.0035, "3.5ms"), (0.05, "50ms"), (1.5, "1.50s")]
)
def test_short_times_are_readable(seconds: float, said: str) -> None:
    assert say_fine(seconds) == said
