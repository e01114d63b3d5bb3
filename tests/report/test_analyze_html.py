import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import polars as pl
import pytest

from chunkwise.report.analyze_html import page, write_page
from chunkwise.workload.analysis import Analysis, analyze
from chunkwise.workload.profile import Profile, profile_of
from chunkwise.workload.workload import Workload

DATA = Path(__file__).parents[1] / "data"
MEAN = "<script>document.title='broken'</script><img src=x onerror=alert(1)>"
CHARTS = ("lengths", "prefix-reuse", "arrivals")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


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


def opened(path: Path, home: Path, width: int) -> tuple[str, str]:
    """Open the page in a frame of that width; return what the browser made and said."""
    assert BROWSER, "run scripts/setup-browser"
    outer = path.with_name(f"frame-{width}.html")
    outer.write_text(
        f'<body><iframe src="{path.name}" style="width:{width}px;height:3000px"></iframe>'
        "<script>onload = () => { const inside = document.querySelector('iframe').contentDocument;"
        "document.title = inside.documentElement.scrollWidth;"
        "const copy = document.createElement('main');"
        "copy.innerHTML = inside.body.innerHTML; document.body.append(copy) }</script>"
    )
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--allow-file-access-from-files",
            f"--user-data-dir={home}",
            "--enable-logging=stderr",
            "--v=0",
            "--virtual-time-budget=8000",
            "--dump-dom",
            outer.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


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
