"""The command, as a user runs it."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
DATA = Path(__file__).parents[1] / "data"
TRACE = str(DATA / "mooncake_120.jsonl")


@pytest.mark.engine
def test_a_trace_on_a_gpu(chunkwise: Run, tmp_path: Path) -> None:
    page, trace = tmp_path / "run.html", tmp_path / "run.trace.json"
    result = chunkwise(
        *("simulate", TRACE, "--model", "Qwen/Qwen3-8B", "--gpu", "h100_sxm", "--limit", "40"),
        *("--budget", "2048", "--ttft", "2s", "--html", str(page), "--trace", str(trace), "--json"),
    )
    assert result.returncode == 0, result.stderr
    content = json.loads(result.stdout)
    assert content["schema"] == "chunkwise.simulate/1"
    assert content["served"] + sum(item["requests"] for item in content["refused"]) == 40
    assert content["machine"]["settings"]["max_num_batched_tokens"] == 2048
    assert content["machine"]["notes"]
    assert 0 < content["cache_hit_share"] < 1
    assert "A simulated run" in page.read_text()
    assert json.loads(trace.read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "Give the GPU"),
        (["--gpu", "h100_sxm", "--rate", "1", "--users", "3"], "one of --rate"),
        (["--gpu", "h100_sxm", "--rate", "-1"], "above 0"),
        (["--gpu", "h100_sxm", "--router", "magic"], "is no router"),
        (["--gpu", "h100_sxm", "--budget", "4", "--max-num-seqs", "8"], "below max_num_seqs"),
    ],
)
def test_mistakes_are_sentences(chunkwise: Run, args: list[str], words: str) -> None:
    result = chunkwise("simulate", TRACE, "--model", "Qwen/Qwen3-8B", *args)
    assert result.returncode == 2
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
