import json
import subprocess
from collections.abc import Callable

import pytest
from tests.cost.test_shape import LLAMA_8B

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = tmp_path_factory.mktemp("llama")
    (home / "config.json").write_text(json.dumps(LLAMA_8B))
    return str(home)


def test_tables(chunkwise: Run, llama: str) -> None:
    result = chunkwise("memory", "--model", llama, "--memory", "80GiB")
    assert result.returncode == 0
    text = " ".join(result.stdout.split())
    for word in ("128.0 KiB of KV cache", "16,384", "131,072", "47", "KV pool", "running sum"):
        assert word in text


def test_a_cpu_has_another_pool(chunkwise: Run, llama: str) -> None:
    asked = ("memory", "--model", llama, "--memory", "80GiB", "--json", "--device")
    gpu, cpu = (json.loads(chunkwise(*asked, kind).stdout) for kind in ("gpu", "cpu"))
    assert gpu["budgets"][0]["pool_tokens"] != cpu["budgets"][0]["pool_tokens"]
    # Without a step measured, the budget takes nothing from the pool.
    assert len({item["pool_tokens"] for item in cpu["budgets"]}) == 1


def test_json(chunkwise: Run, llama: str) -> None:
    result = chunkwise("memory", "--model", llama, "--scoring-limit", "2GiB", "--json")
    content = json.loads(result.stdout)
    assert content["schema"] == "chunkwise.memory/1"
    assert [item["budget"] for item in content["budgets"]] == [512 * 2**n for n in range(6)]
    assert [item["tokens"] for item in content["lengths"]][:3] == [47, 500, 2156]
    assert 2000 < content["largest_scoring_budget"] < 3000


def test_mistakes_are_sentences(chunkwise: Run, llama: str) -> None:
    for args, words in [
        (["--budget", "8192", "--scoring-limit", "2GiB"], "set max_num_batched_tokens to "),
        (["--budget", "8192"], "--scoring-limit"),
        (["--memory", "much"], "is not a size"),
    ]:
        result = chunkwise("memory", "--model", llama, *args)
        assert result.returncode == 2
        assert words in result.stderr
        assert "Traceback" not in result.stderr
