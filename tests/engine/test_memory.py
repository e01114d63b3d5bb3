"""The byte counts against what the real CPU engine takes and reports."""

from pathlib import Path

import pytest

from chunkwise.cost import memory
from chunkwise.cost.shape import read_shape
from chunkwise.engine.stepper import Stepper

pytestmark = pytest.mark.engine

PROMPT = 1100


def status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def test_weights_and_pool_are_what_vllm_has(small_budget_engine: Stepper, smollm2: Path) -> None:
    shape = read_shape(str(smollm2))
    on_disk = (smollm2 / "model.safetensors").stat().st_size
    assert memory.weight_bytes(shape) == pytest.approx(on_disk, rel=0.01)
    cache = small_budget_engine._engine.vllm_config.cache_config
    reported = cache.num_gpu_blocks * cache.block_size
    assert memory.pool_from_bytes(shape, 2**30, cache.block_size).tokens == pytest.approx(
        reported, rel=0.02
    )


def test_scoring_peaks_where_predicted(small_budget_engine: Stepper, smollm2: Path) -> None:
    from vllm import SamplingParams

    shape = read_shape(str(smollm2))
    scheduler = small_budget_engine._scheduler
    params = SamplingParams(temperature=0, prompt_logprobs=1, max_tokens=1, detokenize=False)

    def score(first: int) -> int:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = status("VmRSS")
        ids = [first + (7 * n) % 40_000 for n in range(PROMPT)]
        small_budget_engine._engine.add_request(f"{first}", {"prompt_token_ids": ids}, params)
        while small_budget_engine.busy:
            small_budget_engine._engine.step()
        return status("VmHWM") - before

    score(10)  # warms the allocator
    full = scheduler.max_num_scheduled_tokens
    try:
        for budget in (256, 128, 192):  # a step's budget can be lowered while it runs
            scheduler.max_num_scheduled_tokens = budget
            predicted = memory.step_bytes(shape, budget, PROMPT, "cpu")
            assert predicted == pytest.approx(score(10 + budget), rel=0.15), budget
    finally:
        scheduler.max_num_scheduled_tokens = full
