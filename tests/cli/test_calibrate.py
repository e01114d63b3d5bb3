import json
from pathlib import Path

import pytest
from tests.conftest import Run

LOG = str(Path(__file__).parent.parent / "data" / "logs" / "iterations_0.24.log")


def test_a_log_as_json_and_as_a_page(chunkwise: Run, tmp_path: Path) -> None:
    save, html = tmp_path / "a.calibration.json", tmp_path / "a.html"
    done = chunkwise("calibrate", LOG, "--save", str(save), "--html", str(html), "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["schema"] == "chunkwise.calibrate/1"
    assert content["file"] == str(save)
    assert content["error"]["p95"] < 0.01
    assert json.loads(save.read_text())["key"]["model"] == "Qwen/Qwen3-8B"
    assert "Predicted against measured" in html.read_text()


def test_a_log_in_words(chunkwise: Run, tmp_path: Path) -> None:
    done = chunkwise("calibrate", LOG, "--save", str(tmp_path / "a.json"), "--itl", "50ms")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "50ms buys 2,112 tokens at context 0" in said or "50ms buys ~2,112" in said
    assert "What context costs is unknown here" in said


@pytest.mark.slow
def test_mistakes_are_sentences(chunkwise: Run, tmp_path: Path) -> None:
    for arguments, said in (
        (("calibrate",), "one of the two"),
        (("calibrate", LOG, "--run", "m"), "one of the two"),
        (("calibrate", str(tmp_path / "none.log")), "Cannot read"),
        (("calibrate", LOG, "--itl", "soon"), "is not a duration"),
        (("calibrate", "--run", str(tmp_path / "none")), "There is no model"),
        (("calibrate", "--run", "m", "--for", "0s"), "from 1s to 1h"),
    ):
        done = chunkwise(*arguments)
        assert done.returncode == 2, (arguments, done.stderr)
        assert said in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr
