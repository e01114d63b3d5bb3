from pathlib import Path

import polars as pl
import pytest
from tests.captures import life, request, write

from chunkwise.errors import UserMistake
from chunkwise.readers.capture import captures, runs
from chunkwise.workload.analysis import analyze
from chunkwise.workload.captured import captured
from chunkwise.workload.readers import open_file
from chunkwise.workload.text_workload import Reading


def test_a_capture_is_a_workload(tmp_path: Path) -> None:
    write(tmp_path, [request(1, 5.0, prompt=50), request(0, 3.0), request(2, 9.5, output=7)])
    (run,) = runs(captures(tmp_path))
    workload = captured(run)
    frame = pl.concat(workload.batches())
    assert workload.block_size == 16
    assert frame["arrival_s"].to_list() == [0.0, 2.0, 6.5]
    assert frame["prompt_tokens"].to_list() == [100, 50, 100]
    assert frame["output_tokens"].to_list() == [4, 4, 7]
    assert frame["request_class"].unique().to_list() == ["chat"]
    assert frame["prefix_blocks"].list.len().to_list() == [6, 6, 6]
    assert frame["prefix_blocks"][0][0] == int.from_bytes(bytes(range(8)), "little")


def test_analyze_takes_the_folder(tmp_path: Path) -> None:
    write(tmp_path, life(), "a", capture="a", engine=0)
    write(tmp_path, [request(0, 2.0)], "b", capture="b", engine=1)
    (found,) = analyze([str(tmp_path)]).profile.datasets
    assert found.requests == 3
    assert found.prefix is not None
    assert "engines served this" in " ".join(found.notes)


def test_one_file_is_enough(tmp_path: Path) -> None:
    path = write(tmp_path, [request(0, 2.0), request(1, 3.0)])
    (found,) = analyze([str(path)]).profile.datasets
    assert found.requests == 2


def test_a_capture_without_requests(tmp_path: Path) -> None:
    write(tmp_path, [])
    with pytest.raises(UserMistake, match="let it run longer"):
        analyze([str(tmp_path)])


def test_the_last_server_of_a_folder_is_taken(tmp_path: Path) -> None:
    write(tmp_path, life(), "a", capture="a", run="first", started=1.0)
    write(tmp_path, [request(0, 2.0, prompt=7)], "b", capture="b", run="second", started=9.0)
    taken = open_file(tmp_path, "seen", Reading())
    assert pl.concat(taken.batches())["prompt_tokens"].to_list() == [7]
    assert any("last of 2 servers" in note for note in taken.notes)
