"""Turn a file of runs into what the page "Prove it" shows: the report and a stall's picture.

Writes results/NAME.txt (what the terminal shows), results/NAME.md (what the page includes)
and docs/pictures/NAME-stall.png (drawn by Chromium: scripts/setup-browser), NAME being the
file's.
Usage: .venv/bin/python benchmarks/compare_page.py benchmarks/results/compare-mixed.jsonl
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
WIDTH, HEIGHT_OF_ARM, HEIGHT_OF_REST = 960, 190, 110


def main(file: Path) -> None:
    os.environ["COLUMNS"] = "110"
    from contextlib import redirect_stdout
    from io import StringIO

    from chunkwise.lab import runs
    from chunkwise.lab.statistics import compare
    from chunkwise.report.compare import show

    comparison = compare(*runs.read(file))
    shown = StringIO()
    with redirect_stdout(shown):
        show(comparison)
    minutes = sum(run.measured.seconds for run in comparison.runs) / 60
    lines = [line.rstrip() for line in shown.getvalue().splitlines()]
    lines += ["", f"(the {len(comparison.runs)} runs took {minutes:.0f} minutes)", ""]
    (RESULTS / f"{file.stem}.txt").write_text("\n".join(lines))
    print("\n".join(lines))
    fragment = [f'```text\n--8<-- "{file.stem}.txt"\n```', ""]
    if draw(comparison, PICTURES / f"{file.stem}-stall.png"):
        fragment += [f"![A stall as it was seen](pictures/{file.stem}-stall.png)", ""]
    (RESULTS / f"{file.stem}.md").write_text("\n".join(fragment))


def draw(comparison, picture: Path) -> bool:
    """Draw the stall; without a gap anywhere there is none."""
    from chunkwise.report.compare_pictures import stall
    from chunkwise.report.page import styled

    figure = stall(comparison)
    if figure is None:
        return False
    height = HEIGHT_OF_ARM * (1 + len(comparison.arms)) + HEIGHT_OF_REST
    styled(figure).update_layout(width=WIDTH, height=height)
    picture.parent.mkdir(exist_ok=True)
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    assert browser, "run scripts/setup-browser"
    with tempfile.TemporaryDirectory() as home:
        page = Path(home) / "stall.html"
        figure.write_html(page, include_plotlyjs=True, config={"displayModeBar": False})
        subprocess.run(
            [
                browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                f"--user-data-dir={home}/profile", "--virtual-time-budget=6000",
                "--hide-scrollbars", f"--window-size={WIDTH + 16},{height + 16}",
                f"--screenshot={picture}", page.as_uri(),
            ],
            check=True, timeout=90, capture_output=True,
        )  # fmt: skip
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
