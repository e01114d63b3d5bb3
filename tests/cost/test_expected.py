"""What steps should cost before one was taken."""

import pytest
from tests.cost.test_fitted import TRUTH, WHERE

from chunkwise.cost.expected import SYSTEMS, expect, fitted_to, system_of
from chunkwise.cost.fitted import FittedCost, Largest
from chunkwise.cost.step import ErrorQuantiles, Provenance, StepShape

NO_ERROR = ErrorQuantiles(0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("device", "system"),
    [
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA H200", "h200_sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100_sxm"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A100-SXM4-40GB", None),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA L40", None),
        ("cpu", None),
        ("", None),
    ],
)
def test_a_doubtful_name_is_no_system(device: str, system: str | None) -> None:
    assert system_of(device) == system
    if system is None:
        assert expect("no such model", Provenance("live", "m", device), 2048, 64) is None


def test_designed_steps_give_the_terms_back() -> None:
    cost = FittedCost(TRUTH, WHERE, NO_ERROR, Largest())
    found = fitted_to(cost, budget=2048, seqs=64)
    assert found.error.p99 < 0.02
    assert found.largest.prefill_tokens == 2048
    assert found.largest.decodes == 64
    shape = StepShape.of([(700, 3000)], [900] * 20)
    assert found.seconds(shape) == pytest.approx(cost.seconds(shape), rel=0.02)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:::(?!chunkwise|tests)")
def test_every_system_is_one_of_the_tables() -> None:
    from chunkwise.cost import silicon

    assert {system for _, system in SYSTEMS} <= set(silicon.systems())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:::(?!chunkwise|tests)")
@pytest.mark.parametrize("device", ["NVIDIA H100 80GB HBM3", "NVIDIA L40S"])
def test_the_terms_are_near_the_tables(device: str) -> None:
    found = expect("Qwen/Qwen3-8B", Provenance("live", "Qwen3-8B", device), 8192, 256)
    assert found is not None
    assert found.error.p50 < 0.08
    assert found.error.p95 < 0.2
