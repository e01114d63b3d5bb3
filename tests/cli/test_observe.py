import json
from pathlib import Path

import pytest
from tests.captures import life, write
from tests.conftest import Run

pytestmark = pytest.mark.slow


def test_a_table_a_page_and_json(chunkwise: Run, tmp_path: Path) -> None:
    write(tmp_path / "seen", life(), model="<b>tiny</b>")
    page = tmp_path / "page.html"
    shown = chunkwise("observe", str(tmp_path / "seen"), "--itl", "50ms", "--html", str(page))
    assert shown.returncode == 0, shown.stderr
    assert "Where long gaps came from" in shown.stdout
    assert "preemption" in shown.stdout
    assert "2 requests ended in 7 steps" in " ".join(shown.stdout.split())
    text = page.read_text()
    assert "default-src 'none'" in text
    assert "<b>tiny" not in text
    found = json.loads(
        chunkwise("observe", str(tmp_path / "seen"), "--itl", "50ms", "--json").stdout
    )
    assert found["schema"] == "chunkwise.observe/1"
    assert found["runs"][0]["causes"]["preemption"]["gaps"] == 1


def test_the_last_run_unless_all_are_wanted(chunkwise: Run, tmp_path: Path) -> None:
    write(tmp_path, life(), "a", model="first")
    write(tmp_path, life(), "b", model="second", capture="b", run="b", started=2e6)
    shown = chunkwise("observe", str(tmp_path)).stdout
    assert "second" in shown
    assert "first on" not in shown
    assert "1 earlier runs" in shown
    assert "first on" in chunkwise("observe", str(tmp_path), "--all").stdout


def test_mistakes_are_sentences(chunkwise: Run, tmp_path: Path) -> None:
    for arguments, said in (
        ((str(tmp_path / "none"),), "There is no folder"),
        ((str(tmp_path),), "CHUNKWISE=observe"),
        ((str(tmp_path), "--itl", "fast"), "not a duration"),
    ):
        done = chunkwise("observe", *arguments)
        assert done.returncode == 2
        assert said in done.stderr.replace("\n", " ")
