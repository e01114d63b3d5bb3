"""The simple rules on vLLM's own scheduler, in the simulator."""

import numpy as np
import pytest
from tests.sim.costs_for_tests import LinearCost

from chunkwise.settings import Settings
from chunkwise.sim.record import Simulation
from chunkwise.sim.run import Machine, simulate
from chunkwise.sim.traffic import Traffic

pytestmark = pytest.mark.engine

MACHINE = Machine(LinearCost(), kv_tokens=200_000, max_model_len=16_384)
RULES = "chunkwise.engine.rule_schedulers"


def served(rule: str | None, asynchronous: bool) -> Simulation:
    """Forty short requests generate while four long prompts come in."""
    prompt = np.array([50] * 40 + [8000] * 4)
    arrival = np.array([0.0] * 40 + [0.5, 0.6, 0.7, 0.8])
    traffic = Traffic(prompt, np.full(44, 400), arrival)
    settings = Settings(max_num_batched_tokens=4096, max_num_seqs=64, async_scheduling=asynchronous)
    cls = None if rule is None else f"{RULES}.{rule}"
    found = simulate(traffic, settings, MACHINE, scheduler_cls=cls)
    assert (found.measured.token_counts == 400).all()
    return found


@pytest.mark.parametrize("asynchronous", [False, True])
def test_halving_finds_chunks_that_keep_the_target(
    monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    monkeypatch.setenv("CHUNKWISE_ITL", "20ms")
    steps = served("HalvingScheduler", asynchronous).steps
    seconds = steps.end - steps.start
    mixed = (steps.prefill_tokens > 0) & (steps.decodes > 0)
    assert seconds[mixed][0] > 0.05, "the first one is as large as vLLM makes it"
    assert np.median(seconds[mixed]) < 0.02
    stock = served(None, asynchronous).steps
    assert np.median((stock.end - stock.start)[stock.prefill_tokens > 0]) > 0.05


@pytest.mark.parametrize("asynchronous", [False, True])
def test_by_load_gives_few_tokens_beside_many(asynchronous: bool) -> None:
    steps = served("ByLoadScheduler", asynchronous).steps
    beside = steps.prefill_tokens[(steps.prefill_tokens > 0) & (steps.decodes >= 40)]
    assert len(beside)
    assert beside.max() <= 64
