import gzip
import os
from pathlib import Path

import pytest
from tests.captures import life, write

from chunkwise.errors import UserMistake
from chunkwise.observed import SUFFIX
from chunkwise.readers import capture as reading
from chunkwise.readers.capture import calibration, captures, is_capture, read_header, runs


def test_parts_are_one_capture_in_their_order(tmp_path: Path) -> None:
    records = life()
    write(tmp_path, records[4:], "z1", part=2)
    write(tmp_path, records[:4], "z2", part=1)
    (found,) = captures(tmp_path)
    assert list(found.records()) == records
    assert is_capture(tmp_path)


def test_engines_of_one_server_are_one_run(tmp_path: Path) -> None:
    write(tmp_path, life(), "a", capture="a", engine=0)
    write(tmp_path, life(), "b", capture="b", engine=1)
    write(tmp_path, life(), "c", capture="c", run="later", started=2e6)
    assert [[c.header.capture for c in run] for run in runs(captures(tmp_path))] == [
        ["a", "b"],
        ["c"],
    ]


@pytest.mark.parametrize("torn", range(1, 400, 13))
def test_a_torn_file_gives_what_is_whole(tmp_path: Path, torn: int) -> None:
    path = write(tmp_path, life(), torn=torn)
    if read_header(path) is None:
        with pytest.raises(UserMistake, match="never begun"):
            captures(tmp_path)
        return
    (found,) = captures(tmp_path)
    records = list(found.records())
    assert records == life()[: len(records)]


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="holds no capture"):
        captures(tmp_path)
    (tmp_path / f"empty{SUFFIX}").touch()
    with pytest.raises(UserMistake, match="never begun"):
        captures(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"not packed",
        gzip.compress(b"not json\n"),
        gzip.compress(b"[1]\n"),
        gzip.compress(b'{"schema": "other"}\n'),
        gzip.compress(b'{"schema": NaN}\n'),
        gzip.compress(b"[" * 100_000 + b"\n"),
        os.urandom(5000),
    ],
    # Packed bytes hold the time: as names they would differ between processes.
    ids=["not packed", "not json", "a list", "another schema", "no number", "deep", "noise"],
)
def test_what_is_not_a_capture_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"x{SUFFIX}").write_bytes(content)
    with pytest.raises(UserMistake, match="not a capture"):
        captures(tmp_path)


def test_a_bomb_does_not_unfold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LONGEST_LINE", 2**16)
    (tmp_path / f"x{SUFFIX}").write_bytes(gzip.compress(b" " * 2**24))
    with pytest.raises(UserMistake, match="more than a capture can hold"):
        captures(tmp_path)


def test_a_changed_record_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, life())
    text = gzip.decompress(path.read_bytes()).replace(b'"decodes": 2', b'"decodes": -2')
    path.write_bytes(gzip.compress(text))
    (found,) = captures(tmp_path)
    with pytest.raises(UserMistake, match="changed after it was written"):
        list(found.records())


def test_a_step_as_cost_models_take_it() -> None:
    chunks, decodes, context, seconds = calibration(life()[2])
    assert (chunks, decodes, context, seconds) == ([(2000, 0)], 1, 101, 0.3)
