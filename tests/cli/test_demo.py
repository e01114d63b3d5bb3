"""`chunkwise demo` on the real engine, as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run

pytestmark = pytest.mark.engine


def read(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    content: dict[str, Any] = json.loads(result.stdout)
    assert content["schema"] == "chunkwise.demo/1"
    assert Path(content["log"]).is_file()
    return content


def test_simple(chunkwise: Run) -> None:
    content = read(chunkwise("demo", "--mode", "simple", "--json"))
    assert content["resolved"]["budget"] == 256
    lengths = [item["prompt_tokens"] for item in content["prompts"]]
    assert len(lengths) == 4
    assert lengths == sorted(lengths)
    assert lengths[0] < 60
    assert 900 < lengths[-1] < 1200
    for item in content["prompts"]:
        assert sum(item["chunks"]) == item["prompt_tokens"]
        assert len(item["chunks"]) == -(-item["prompt_tokens"] // 256)
        assert item["seconds"] > 0
        assert item["text"].strip()


def test_async(chunkwise: Run, timing_30m: Path) -> None:
    content = read(chunkwise("demo", "--json", "--model", str(timing_30m)))
    assert content["mode"] == "async"
    assert content["scenario"]["long_prompt"] >= 2 * content["scenario"]["default_budget"]
    off, default, small, capped = content["arms"]
    assert (off["chunked"], off["chunks_per_long"]) == (False, 1)
    assert default["budget"] == content["scenario"]["default_budget"]
    assert default["chunks_per_long"] >= 3
    assert small["chunks_per_long"] > default["chunks_per_long"]
    assert capped["threshold"] == small["budget"] // 4
    assert capped["chunks_per_long"] > small["chunks_per_long"]
    for arm in content["arms"]:
        assert 0 < arm["waiting_ttft"] <= arm["seconds"]
        assert 0 < arm["worst_gap"] < arm["seconds"]
        assert arm["tokens_per_second"] > 0
    # What the mechanism guarantees, in units of the machine's own speed at the time: a
    # capped long prompt lets those behind it through, and a step of 512 tokens is
    # shorter than one of 4,000.
    assert steps(capped, "waiting_ttft") < steps(off, "waiting_ttft")
    assert steps(small, "worst_gap") < steps(off, "worst_gap")
    assert len(content["conclusions"]) >= 4


def steps(arm: dict[str, float], figure: str) -> float:
    return arm[figure] / arm["idle_gap"]


def test_sweep_as_a_person_sees_it(chunkwise: Run, timing_30m: Path) -> None:
    result = chunkwise("demo", "--sweep", "64, off", "--model", str(timing_30m))
    assert result.returncode == 0, result.stderr
    for words in ("What they saw", "Averages", "as a picture", "█", "Shortest worst gap: "):
        assert words in result.stdout
    assert "Engine log: " in result.stderr
    assert "INFO" not in result.stdout + result.stderr


def processes_of(session: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def test_ctrl_c_leaves_no_process_behind(timing_30m: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "chunkwise", "demo", "--model", str(timing_30m)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as demo:
        assert demo.stderr
        for line in demo.stderr:  # in mid-run: the first engine is up and working
            if "off: warming up" in line:
                break
        children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
        assert children
        sessions = [os.getsid(int(pid)) for pid in children]
        os.killpg(demo.pid, signal.SIGINT)  # what a terminal does
        demo.communicate(timeout=60)
    assert demo.returncode == 130
    deadline = time.monotonic() + 5  # the kernel may take a moment to bury them
    while any(map(processes_of, sessions)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(processes_of, sessions))


def failed(result: subprocess.CompletedProcess[str], code: int, words: str) -> None:
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    last = result.stderr.strip().splitlines()[-1]
    assert words in result.stderr.replace("\n", " ")
    assert last.endswith((".", "│", "╯"))
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "/no/such/model"], "There is no model at /no/such/model"),
        (["--sweep", "32,many"], "`many` is not a budget"),
        (["--sweep", "0"], "`0` is not a budget"),
        (["--sweep", "²"], "is not a budget"),
        (["--sweep", ",".join(map(str, range(1, 18)))], "at most 16"),
        (["--budget", "-1", "--mode", "simple"], "--budget"),
        (["--budget", "64"], "use --sweep 64"),
        (["--mode", "simple", "--sweep", "32"], "leave out --mode simple"),
        (["--mode", "loud"], "--mode"),
    ],
)
def test_mistakes_are_told_at_once(chunkwise: Run, arguments: list[str], words: str) -> None:
    start = time.monotonic()
    failed(chunkwise("demo", *arguments), 2, words)
    assert time.monotonic() - start < 10


def test_a_model_larger_than_the_machine(chunkwise: Run, timing_30m: Path, tmp_path: Path) -> None:
    for file in timing_30m.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config.update(hidden_size=16384, intermediate_size=65536, num_hidden_layers=120)
    config.update(num_attention_heads=256, num_key_value_heads=256)
    (tmp_path / "config.json").write_text(json.dumps(config))
    failed(chunkwise("demo", "--model", str(tmp_path)), 3, "needs more memory than there is")


def test_a_name_that_no_hub_can_answer(chunkwise: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result = chunkwise("demo", "--model", "nobody/has-this-model")
    failed(result, 3, "model")
