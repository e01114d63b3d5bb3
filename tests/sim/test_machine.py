"""From a GPU's name or a calibration to what is simulated."""

import json
from pathlib import Path

import pytest
from tests.cost.test_shape import LLAMA_8B

from chunkwise.cost import calibrations
from chunkwise.cost.fitted import Coefficients, FittedCost, Largest
from chunkwise.cost.step import ErrorQuantiles, Provenance
from chunkwise.errors import UserMistake
from chunkwise.settings import Settings
from chunkwise.sim.machine import calibrated, gpu_defaults, on_gpu
from chunkwise.sizes import GIB

pytestmark = pytest.mark.slow


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    cost = FittedCost(
        Coefficients(0.002, 0.001, 1e-5, 0.0, 1e-10, 1e-5, 1e-9),
        Provenance("calibration", "llama", "cpu"),
        ErrorQuantiles(100, 0.01, 0.02, 0.03, 0.04),
        Largest(4096, 8, 1e8, 64, 100_000),
        scatter=(0.9, 1.0, 1.2),
    )
    return calibrations.save(cost, tmp_path / "made.calibration.json")


@pytest.fixture
def llama(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    return str(tmp_path)


@pytest.mark.filterwarnings("ignore:::(?!chunkwise|tests)")
def test_a_gpu_has_a_pool_and_vllms_defaults() -> None:
    machine, settings = on_gpu("Qwen/Qwen3-8B", "h100_sxm", Settings(max_num_seqs=64))
    assert 300_000 < machine.kv_tokens < 500_000
    assert machine.max_model_len == 40_960
    assert (settings.max_num_batched_tokens, settings.max_num_seqs) == (8192, 64)


def test_defaults_follow_the_memory() -> None:
    assert gpu_defaults("b200_sxm", 180 * GIB) == (16_384, 1024)
    assert gpu_defaults("h100_sxm", 80 * GIB) == (8192, 1024)
    assert gpu_defaults("a100_sxm", 80 * GIB) == (2048, 256)
    assert gpu_defaults("l4", 24 * GIB) == (2048, 256)


def test_a_calibration_needs_the_size_of_the_cache(calibration: Path, llama: str) -> None:
    with pytest.raises(UserMistake, match="--kv-cache"):
        calibrated(llama, calibration, Settings())
    machine, settings = calibrated(llama, calibration, Settings(kv_cache_memory_bytes=GIB))
    assert machine.kv_tokens == GIB // (128 * 1024)
    assert settings.async_scheduling is False  # a CPU has none
    assert machine.scatter == (0.9, 1.0, 1.2)
    eight, _ = calibrated(
        llama, calibration, Settings(kv_cache_memory_bytes=GIB, kv_cache_dtype="fp8")
    )
    assert eight.kv_tokens == 2 * machine.kv_tokens


def test_a_budget_below_the_usual_number_of_requests(calibration: Path, llama: str) -> None:
    _, settings = calibrated(
        llama, calibration, Settings(kv_cache_memory_bytes=GIB, max_num_batched_tokens=64)
    )
    assert settings.max_num_seqs == 64
