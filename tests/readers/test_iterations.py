"""Iteration logs: a real one, older formats, torn and coloured ones, and very long ones."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.errors import UserMistake
from chunkwise.readers.iterations import LONGEST_LINE, Iteration, IterationLog

LINE = (
    "(APIServer pid=7) INFO 11-15 06:00:01 [loggers.py:199] Engine 001: Iteration(42): "
    "2 context requests, 300 context tokens, 5 generation requests, 7 generation tokens, "
    "iteration elapsed time: 12.34 ms, GPU KV cache usage: 3.1%\n"
)
READ = Iteration(1, 42, 2, 300, 5, 7, 0.01234)


def read(tmp_path: Path, text: str | bytes) -> tuple[list[Iteration], IterationLog]:
    path = tmp_path / "server.log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    log = IterationLog(path)
    return list(log.iterations()), log


def test_a_line_is_read(tmp_path: Path) -> None:
    found, log = read(tmp_path, "Starting\n" + LINE)
    assert found == [READ]
    assert log.waits_for_steps is None  # a GPU's log that does not tell


def test_a_real_log_is_read(root: Path) -> None:
    log = IterationLog(root / "tests/data/logs/iterations_0.32_cpu.log")
    found = list(log.iterations())
    assert [item.index for item in found] == list(range(191))
    assert max(item.prefill_tokens + item.decodes for item in found) == 256  # its budget
    assert all(item.decode_tokens == item.decodes for item in found)
    # The server was busy for 15.2 seconds, as its client saw it.
    assert 13 < sum(item.seconds for item in found) < 15.2
    assert (log.model, log.version) == ("/models/timing-30m-1", "0.32.0")
    assert log.waits_for_steps is True


def test_the_engine_process_of_older_versions_is_read(root: Path) -> None:
    log = IterationLog(root / "tests/data/logs/iterations_0.24.log")
    found = list(log.iterations())
    assert [item.index for item in found] == list(range(80))
    assert {item.engine for item in found} == {0}
    assert (log.model, log.version) == ("Qwen/Qwen3-8B", "0.24.0")
    assert log.waits_for_steps is True


def test_interleaved_engines_are_kept_apart(root: Path) -> None:
    log = IterationLog(root / "tests/data/logs/iterations_0.28_two_engines.log")
    found = list(log.iterations())
    assert {item.engine for item in found} == {0, 1}
    for engine in (0, 1):
        indices = [item.index for item in found if item.engine == engine]
        assert indices == sorted(indices)
    # Dummies of data parallelism and steps with images say nothing about text.
    assert log.skipped == 9
    assert len(found) == 120 - 9


def test_ranks_of_older_versions(tmp_path: Path) -> None:
    line = LINE.replace("(APIServer pid=7)", "(EngineCore_DP3 pid=9)").replace("Engine 001: ", "")
    assert read(tmp_path, line)[0][0].engine == 3


def test_colours_are_taken_off(tmp_path: Path) -> None:
    coloured = "\x1b[0;36m(APIServer pid=7)\x1b[0;0m \x1b[32mINFO\x1b[0m " + LINE[18:]
    assert read(tmp_path, coloured)[0] == [READ]


@given(cut=st.integers(0, len(LINE) - 2))
def test_a_torn_line_is_whole_or_nothing(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("torn")
    found, _ = read(path, LINE + LINE[:cut])
    assert found[0] == READ
    assert found[1:] in ([], [READ])
    # What follows on the same line is not lost, nor mixed into it.
    assert read(path, LINE[:cut] + LINE)[0][-1] == READ


@given(st.binary(max_size=300))
def test_any_bytes_are_read(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    found, _ = read(tmp_path_factory.mktemp("noise"), noise + b"\n" + LINE.encode() + noise)
    assert READ in found


def test_a_line_without_end_is_bounded(tmp_path: Path) -> None:
    found, _ = read(tmp_path, "x" * (3 * LONGEST_LINE) + "\n" + LINE)
    assert found == [READ]


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        ("non-default args: {'async_scheduling': False}", True),
        ("non-default args: {'async_scheduling': True}", False),
        ("WARNING Async scheduling will be disabled because it is not supported", True),
        ("CPU KV cache size: 1,024 tokens", True),
        ("nothing about it", None),
    ],
)
def test_whether_the_engine_schedules_ahead(tmp_path: Path, said: str, waits: bool | None) -> None:
    assert read(tmp_path, said + "\n" + LINE)[1].waits_for_steps is waits


def test_a_missing_log_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="Cannot read"):
        list(IterationLog(tmp_path / "none.log").iterations())


@pytest.mark.slow
def test_a_million_lines_take_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    with path.open("w") as file:
        for _ in range(1000):
            file.write(LINE * 1000)
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from chunkwise.readers.iterations import IterationLog\n"
        "from chunkwise.lab.calibrate import sample\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "kept, seen = sample(IterationLog(Path(sys.argv[1])).iterations())\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(seen, len(kept), (after - before) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    seen, kept, grown = map(int, done.stdout.split())
    assert (seen, kept) == (1_000_000, 20_000)
    assert grown < 60, "MiB"
