import re
from html import unescape
from pathlib import Path

import polars as pl
import pytest
from tests.report.browser import opened

from chunkwise.report.analyze_html import page, write_page
from chunkwise.workload.analysis import Analysis, analyze
from chunkwise.workload.profile import Profile, profile_of
from chunkwise.workload.workload import Workload

DATA = Path(__file__).parents[1] / "data"
MEAN = "<script>document.title='broken'</script><img src=x onerror=alert(1)>"
CHARTS = ("lengths", "prefix-reuse", "arrivals")


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    """A real trace, and a dataset and a left-out file with names that try to be markup."""
    real = analyze([str(DATA / "mooncake_120.jsonl")])
    mean = profile_of(Workload.of(pl.DataFrame({"prompt_tokens": [5, 6000]}), MEAN))
    both = Profile(datasets=(*real.profile.datasets, mean))
    return Analysis(both, ((MEAN, f"Cannot read {MEAN}"),))


def test_names_are_text(analysis: Analysis) -> None:
    text = page(analysis, MEAN)
    body = text[text.index("<body>") :]
    assert MEAN not in body
    assert "&lt;script&gt;document.title" in body
    assert "vllm serve" in body


def test_nothing_is_loaded_from_elsewhere(analysis: Analysis) -> None:
    text = page(analysis, "m")
    assert "default-src 'none'" in text
    outside = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"<[^>]*(?:src|href)\s*=", outside)


def test_an_estimate_is_marked() -> None:
    text = page(analyze([str(DATA / "vllm_custom.jsonl")], estimate=True), "m")
    for part in ("Lengths (estimated)", "prompt (estimated)", "Datasets (estimated)", "estimates"):
        assert part in text
    assert (
        "estimated"
        not in page(analyze([str(DATA / "mooncake_120.jsonl")]), "m").split("</head>")[1]
    )


@pytest.mark.browser
@pytest.mark.parametrize("width", [1000, 390])
def test_the_page_in_a_browser(analysis: Analysis, tmp_path: Path, width: int) -> None:
    file = tmp_path / "report.html"
    write_page(file, analysis, "m")
    made, console = opened(file, tmp_path / "profile", width)
    assert console == ""
    for name in CHARTS:
        chart = made[made.index(f'id="chart-{name}"') :]
        assert "js-plotly-plot" in chart[:400], name
        assert '<svg class="main-svg"' in chart[:2000], name
    assert "bars" in made  # drawn, not only framed
    shown = re.findall(r"<td>(.*?)</td>", made)
    assert MEAN in map(unescape, shown)
    # Nothing sticks out sideways: on a phone the page scrolls one way only.
    assert int(re.search(r"<title>(\d+)</title>", made).group(1)) <= width
