"""A second environment that has Chunkwise and no vLLM."""

import json
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cost.test_shape import LLAMA_8B

pytestmark = pytest.mark.slow

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def bare(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, with_pip=False)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", str(home / "bin" / "python")),
            *("install", "--quiet", str(root)),
        ],
        check=True,
        capture_output=True,
    )

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(home / "bin" / "chunkwise"), *args], capture_output=True, text=True, check=False
        )

    return run


def test_env_says_so_in_a_sentence(bare: Run) -> None:
    result = bare("env")
    assert result.returncode == 0
    assert result.stderr == ""
    assert " ".join(result.stdout.split()).startswith("vLLM is not installed here: install it with")


def test_env_json(bare: Run) -> None:
    content = json.loads(bare("env", "--json").stdout)
    assert content["schema"] == "chunkwise.env/1"
    assert content["vllm"] is None
    assert "pip install vllm" in content["message"]


def test_compare_says_what_is_missing(bare: Run) -> None:
    arms = ["--arm", "default", "--arm", "off"]
    result = bare("compare", "mixed", "--model", "m", *arms, "--rate", "1")
    assert result.returncode == 3
    assert "needs" in result.stderr
    assert "Traceback" not in result.stderr


def test_demo_says_what_is_missing(bare: Run) -> None:
    result = bare("demo")
    assert result.returncode == 3
    assert result.stdout == ""
    assert result.stderr.startswith("chunkwise: The demo needs vLLM: install it with")
    assert "Traceback" not in result.stderr


def test_serve_says_what_is_missing_and_still_shows_the_line(bare: Run) -> None:
    result = bare("serve", "my-model")
    assert result.returncode == 3
    assert result.stdout == ""
    assert result.stderr.startswith("chunkwise: A server needs vLLM: install it with")
    shown = bare("serve", "my-model", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "vllm serve my-model --scheduler-cls" in shown.stdout


def test_analyze_says_which_extra_it_needs(bare: Run, root: Path) -> None:
    result = bare("analyze", str(root / "tests" / "data" / "azure_conv_200.csv"))
    assert result.returncode == 3
    assert "pip install 'chunkwise[plan]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_memory_needs_no_vllm(bare: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    result = bare("memory", "--model", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "128.0 KiB of KV cache" in " ".join(result.stdout.split())


def test_version_and_help(bare: Run) -> None:
    assert bare("--version").stdout.startswith("chunkwise 0.")
    for command in ("analyze", "compare", "demo", "env", "lm-eval", "memory", "serve"):
        assert "Example: chunkwise" in bare(command, "--help").stdout
