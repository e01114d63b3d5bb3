"""The file of a comparison keeps whole runs and drops a torn one."""

from pathlib import Path

import numpy as np
import pytest

from chunkwise.errors import UserMistake
from chunkwise.lab import runs
from chunkwise.measured import Measured


def run(arm: str, number: int) -> runs.Run:
    measured = Measured.of([0.0, 0.5], [[0.25, 0.375], [1.0]], [7, 9], ["chat", "batch"])
    return runs.Run(arm, number, 0, measured, np.array([0.0, 0.001]), {"timed out": 1})


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    runs.begin(file, {"baseline": "default"})
    runs.add(file, run("default", 0))
    runs.add(file, run("off", 0))
    asked, found = runs.read(file)
    assert asked["baseline"] == "default"
    assert [one.to_json() for one in found] == [run(arm, 0).to_json() for arm in ("default", "off")]


def test_a_torn_line_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    runs.begin(file, {})
    runs.add(file, run("default", 0))
    whole = file.read_bytes()
    runs.add(file, run("off", 0))
    torn = file.read_bytes()[:-20]
    file.write_bytes(torn)
    assert [one.arm for one in runs.read(file)[1]] == ["default"]
    assert torn.startswith(whole)


def test_a_file_is_never_begun_twice(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    runs.begin(file, {})
    with pytest.raises(FileExistsError):
        runs.begin(file, {})


@pytest.mark.parametrize("text", ["", "{}\n", "not json\n", '{"schema": "other/1"}\n', "[1]\n"])
def test_another_file_is_refused_with_a_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_text(text)
    with pytest.raises(UserMistake):
        runs.read(file)
