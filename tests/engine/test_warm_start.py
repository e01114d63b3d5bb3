"""The first steps on a GPU that the tables know: a named device, priced by those tables.

There is no GPU here: vLLM's real scheduler is stepped, its device is called by a
GPU's name, and each step takes what the tables say, times a factor.
"""

import logging
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine import no_model
from tests.engine.soaking import Build, Device, builder

from chunkwise.cost import expected, silicon
from chunkwise.cost.gpu import SiliconCost
from chunkwise.cost.step import StepShape
from chunkwise.engine import clock, compat

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore:::(?!chunkwise|tests)")]

DEVICE = "NVIDIA L40S"
ITL = 0.045  # 256 tokens beside 40 answers take 36 ms by the tables: too long if they are wrong


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("Qwen3-8B")
    shutil.copy(silicon.config_file("Qwen/Qwen3-8B"), folder / "config.json")
    return folder


@pytest.fixture(scope="module")
def tables() -> SiliconCost:
    return silicon.load("Qwen/Qwen3-8B", "l40s")


class Priced(Device):
    """Takes what a cost says, times a factor."""

    def __init__(self, cost: Any, factor: float):
        super().__init__()
        self._cost, self._factor = cost, factor

    def seconds(self, scheduler: Any, output: Any) -> float:
        chunks, decodes = [], []
        for name, tokens in output.num_scheduled_tokens.items():
            request = scheduler.requests[name]
            before = request.num_computed_tokens - tokens
            if before < request.num_prompt_tokens:
                chunks.append((tokens, before))
            else:
                decodes.append(before)
        shape = StepShape.of(chunks, decodes)
        took = self._factor * self._cost.seconds(shape)
        self.steps.append((took, shape.decodes, shape.prefill_tokens))
        return float(took)


@pytest.fixture
def build(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    monkeypatch.setattr(compat, "platform_name", lambda: DEVICE)
    yield from builder(model, tmp_path, monkeypatch)


def early_gaps(paced: Any, device: Priced) -> list[float]:
    """Forty answers begin, then long prompts come; return the first steps that carry both."""
    feed = no_model.Feed()
    for number in range(40):
        paced.add_request(feed(f"talk{number}", 60, 1000))
    while any(not request.num_output_tokens for request in paced.requests.values()):
        device.step(paced)
    device.steps.clear()
    for number in range(20):
        paced.add_request(feed(f"long{number}", 1500, 4))
    for _ in range(150):
        device.step(paced)
    found = [took for took, decodes, prefill in device.steps if decodes and prefill]
    assert len(found) > 20
    assert paced._pacer is not None
    return found


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.25])
def test_early_gaps_are_within_the_target(
    build: Build, tables: SiliconCost, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    monkeypatch.setenv("CHUNKWISE_ITL", "45ms")
    device = Priced(tables, factor)
    monkeypatch.setattr(clock, "now", lambda: device.now)
    paced = build(max_num_seqs=64)
    assert paced._pacer._ramp.done
    assert max(early_gaps(paced, device)) <= ITL


def test_from_nothing_the_first_gaps_are_longer(
    build: Build, tables: SiliconCost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "platform_name", lambda: "some other GPU")
    monkeypatch.setenv("CHUNKWISE_ITL", "45ms")
    device = Priced(tables, 1.25)
    monkeypatch.setattr(clock, "now", lambda: device.now)
    paced = build(max_num_seqs=64)
    assert not paced._pacer._ramp.done
    assert max(early_gaps(paced, device)[:20]) > ITL


@pytest.mark.parametrize("trouble", ["no tables", "no such model", "the tables fail"])
def test_without_tables_it_begins_from_nothing(
    build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise KeyError("planted")

    if trouble == "no tables":
        monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    elif trouble == "no such model":
        monkeypatch.setattr(expected, "SYSTEMS", ((DEVICE, "no_such_system"),))
    else:
        monkeypatch.setattr(silicon, "load", fail)
    with caplog.at_level(logging.INFO, "vllm.chunkwise"):
        paced = build()
    assert not paced._pacer._ramp.done
