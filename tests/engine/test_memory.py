"""The byte counts against what the real CPU engine takes and reports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chunkwise.cost import memory
from chunkwise.cost.shape import read_shape
from chunkwise.engine.stepper import Stepper

pytestmark = pytest.mark.engine

BUDGET = 1024
PROMPT = 3000  # the benchmark's


def test_weights_and_pool_are_what_vllm_has(small_budget_engine: Stepper, smollm2: Path) -> None:
    shape = read_shape(str(smollm2))
    on_disk = (smollm2 / "model.safetensors").stat().st_size
    assert memory.weight_bytes(shape) == pytest.approx(on_disk, rel=0.01)
    cache = small_budget_engine._engine.vllm_config.cache_config
    reported = cache.num_gpu_blocks * cache.block_size
    assert memory.pool_from_bytes(shape, 2**30, cache.block_size).tokens == pytest.approx(
        reported, rel=0.02
    )


def test_scoring_peaks_where_predicted(smollm2: Path, root: Path) -> None:
    # In a process of its own: one that has worked before has memory to spare, and its
    # growth tells nothing. The benchmark does the same for more budgets and dtypes.
    command = [sys.executable, str(root / "benchmarks" / "memory.py"), "peak", str(smollm2)]
    options = json.dumps({"budget": BUDGET, "dtype": "float32"})
    done = subprocess.run([*command, options], capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout.splitlines()[-1])["peak"]
    predicted = memory.step_bytes(read_shape(str(smollm2)), BUDGET, PROMPT, "cpu")
    assert predicted == pytest.approx(measured, rel=0.15)
