import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from tests.made_runs import asked, rounds
from tests.report.browser import opened

from chunkwise.errors import UserMistake
from chunkwise.lab.statistics import Comparison, compare
from chunkwise.report.compare_html import page, write

MEAN = "<script>document.title='broken'</script><img src=x onerror=alert(1)>"
CHARTS = ("a-stall-as-it-was-seen", "intervals", "first-tokens", "gaps")


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    """Arms, classes and a command with names that try to be markup."""
    runs = []
    for one in rounds(6, **{MEAN: 1.3, "b": 0.9}):
        classes = [name.replace("long", MEAN) for name in one.measured.classes or ()]
        runs.append(replace(one, measured=replace(one.measured, classes=tuple(classes))))
    return compare(asked(MEAN, "b", command=["compare", MEAN], model=MEAN), runs)


def test_names_are_text(comparison: Comparison) -> None:
    text = page(comparison)
    body = text[text.index("<body>") :]
    assert MEAN not in body
    assert "&lt;script&gt;document.title" in body


def test_nothing_is_loaded_from_elsewhere(comparison: Comparison) -> None:
    text = page(comparison)
    assert "default-src 'none'" in text
    outside = re.sub(r"<script[^>]*>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"<[^>]*(?:src|href)\s*=", outside)


@pytest.mark.parametrize("count", [0, 1])
def test_a_page_of_almost_nothing(count: int) -> None:
    text = page(compare(asked("arm"), rounds(count, arm=1.0)))
    assert "too noisy to tell" in text
    assert ('id="chart-a-stall-as-it-was-seen"' in text) == bool(count)


def test_a_place_that_cannot_be_written(comparison: Comparison, tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="Cannot write"):
        write(comparison, tmp_path / "no" / "such.html")


@pytest.mark.browser
@pytest.mark.parametrize("width", [1000, 390])
def test_the_page_in_a_browser(comparison: Comparison, tmp_path: Path, width: int) -> None:
    file = tmp_path / "compare.html"
    write(comparison, file)
    made, console = opened(file, tmp_path / "profile", width)
    assert console == ""
    for name in CHARTS:
        chart = made[made.index(f'id="chart-{name}"') :]
        assert "js-plotly-plot" in chart[:400], name
        assert '<svg class="main-svg"' in chart[:2000], name
    # Drawn, not only framed: tokens of three arms, and the stretch of each one's longest wait.
    seen = made[made.index('id="chart-a-stall') : made.index('id="chart-intervals"')]
    assert len(re.findall(r'class="trace scatter', seen)) == 6
    assert seen.count('class="point"') > 100
    assert len(set(re.findall(r'data-index="(\d)"', seen))) == 3
    assert "errorbar" in made
    assert MEAN in map(unescape, re.findall(r"<td>(.*?)</td>", made))
    # Nothing sticks out sideways: on a phone the page scrolls one way only.
    assert int(re.search(r"<title>(\d+)</title>", made).group(1)) <= width
