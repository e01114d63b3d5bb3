"""lm-evaluation-harness with `--model chunkwise`, on local task files and a real engine."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from chunkwise.errors import EngineTrouble, UserMistake
from chunkwise.lab import lm_eval

pytestmark = pytest.mark.engine
pytest.importorskip("lm_eval")

Run = Callable[..., subprocess.CompletedProcess[str]]

TASK = """
task: capitals
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{prompt}}}}"
doc_to_choice: ["Paris", "Rome", "Berlin"]
doc_to_target: "{{{{gold}}}}"
metric_list: [{{metric: acc}}]
"""
LAND = ["France", "Italy", "Germany"]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("tasks")
    rows = [{"prompt": f"The capital of {land} is", "gold": n} for n, land in enumerate(LAND)]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "capitals.yaml").write_text(TASK.format(file=home / "rows.jsonl"))
    return home


def test_a_suite_runs_and_keeps_its_settings(
    chunkwise: Run,
    tasks: Path,
    smollm2: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    result = chunkwise(
        *("lm-eval", "run", "--model", "chunkwise", "--tasks", "capitals"),
        *("--include_path", str(tasks), "--output_path", str(tmp_path), "--model_args"),
        f"pretrained={smollm2},dtype=float32,max_model_len=1024,enforce_eager=True,"
        f"kv_cache_memory_bytes={2**29}",
    )
    assert result.returncode == 0, result.stderr[-2000:]
    [kept] = tmp_path.rglob("results_*.json")
    found = json.loads(kept.read_text())
    assert found["results"]["capitals"]["acc,none"] == 1.0
    assert found["config"]["chunkwise"]["decision"].startswith("uncut")
    assert found["config"]["chunkwise"]["dtype"] == "float32"
    # Three questions of three single-token choices: three requests, not nine.
    assert found["config"]["chunkwise_stats"]["requests"] == 3


def test_what_it_cannot_do_is_a_sentence(smollm2: Path) -> None:
    with pytest.raises(EngineTrouble, match="one engine"):
        lm_eval.register()(pretrained=str(smollm2), data_parallel_size=2)
    with pytest.raises(UserMistake, match="raise max_model_len"):
        lm_eval._cut([1], [2] * 10, 10)
    assert lm_eval._cut([1, 2, 3], [4, 5], 4).context == (2, 3)
