"""Ahead of time, on the real engine: what it builds, what it leaves out, how it fails."""

import gc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chunkwise.engine.compile import CompiledModel, create_vllm_enhanced_compiler

pytestmark = pytest.mark.engine

CONFIG = {
    "load_format": "dummy",
    "enforce_eager": True,  # compiling takes minutes on a CPU
    "kv_cache_memory_bytes": 2**28,
    "max_num_seqs": 32,
}
SHORT = [[100 + n, *range(200, 246)] for n in range(40)]


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CompiledModel]]:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    made: list[CompiledModel] = []
    yield made
    while made:
        made.pop().llm.llm_engine.engine_core.shutdown()
    gc.collect()


def params() -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=1, detokenize=False)


def test_a_short_suite_is_left_uncut(timing_30m: Path, stopping: list[CompiledModel]) -> None:
    module = SimpleNamespace(name_or_path=str(timing_30m))
    compiler = create_vllm_enhanced_compiler()
    model = compiler.compile_model_aot(module, SHORT, CONFIG)
    stopping.append(model)
    assert "llm_engine" in vars(model.llm)  # ahead of time: there before the first call
    assert any("CUDA graphs" in note for note in model.notes)
    assert any("enforce_eager" in note for note in model.notes)
    assert len(model(SHORT, params(), use_tqdm=False)) == 40
    stats = model.get_chunking_stats()
    assert stats
    assert (stats.requests, stats.chunks) == (40, 0)


def test_a_threshold_of_ones_own(timing_30m: Path, stopping: list[CompiledModel]) -> None:
    compiler = create_vllm_enhanced_compiler(chunking_threshold=256)
    model = compiler.compile_model_aot(str(timing_30m), SHORT, CONFIG, mode="none")
    stopping.append(model)
    batch = {"input_ids": [[n, *range(1000, 1599)] for n in (1, 2, 3)]}
    assert len(model(batch, params(), use_tqdm=False)) == 3
    stats = model.get_chunking_stats()
    assert stats
    assert stats.chunked_requests == 3
    assert model.llm.chunking_settings()["threshold"] == 256


def test_a_failure_is_a_plain_engine(
    timing_30m: Path, stopping: list[CompiledModel], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    from chunkwise.engine import llm

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("injected")

    monkeypatch.setattr(llm.LLM, "build_for", fail)
    model = create_vllm_enhanced_compiler().compile_model_aot(str(timing_30m), SHORT, CONFIG)
    stopping.append(model)
    assert model.notes == ("everything: RuntimeError('injected')",)
    assert caplog.text.count("RuntimeError('injected')") == 1  # the warning
    assert len(model(SHORT, params(), use_tqdm=False)) == 40
    assert model.get_chunking_stats() is None
