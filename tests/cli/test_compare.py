"""`chunkwise compare`: what it refuses before anything is started."""

from pathlib import Path

import pytest
from tests.conftest import Run
from typer.testing import CliRunner

from chunkwise.cli import app
from chunkwise.errors import UserMistake

TWO = ["mixed", "--model", "some/model", "--arm", "off", "--arm", "default"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "needs what to send"),
        (TWO[:-2], "two arms or more"),
        ([*TWO, "--arm", "of"], "`of` is not an arm"),
        ([*TWO, "--arm", "off"], "Two arms are named"),
        ([*TWO, "--baseline", "x"], "none of the arms"),
        ([*TWO, "--rate", "2", "--users", "3"], "not both"),
        ([*TWO, "--itl", "fast"], "not a duration"),
        ([*TWO, "--server", "tp 2"], "no vLLM argument"),
        ([*TWO, "--model", "/nowhere"], "no model at"),
        (TWO, "has no arrival times"),
        (["--resume", "nowhere.jsonl"], "Cannot read nowhere.jsonl"),
        (["mixed", "--resume", "nowhere.jsonl"], "leave out the rest"),
    ],
)
def test_mistakes_are_sentences(args: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["compare", *args])
    assert isinstance(done.exception, UserMistake)
    assert words in str(done.exception)
    assert done.stdout == ""


def test_a_file_is_never_overwritten(chunkwise: Run, tmp_path: Path) -> None:
    file = tmp_path / "old.jsonl"
    file.write_text("precious")
    done = chunkwise("compare", *TWO, "--rate", "2", "--out", str(file))
    assert done.returncode == 2
    assert "exists" in done.stderr
    with pytest.raises(UserMistake, match="not a file of runs"):
        CliRunner().invoke(app, ["compare", "--resume", str(file)], catch_exceptions=False)
    assert file.read_text() == "precious"
