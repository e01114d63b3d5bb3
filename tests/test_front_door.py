import os
import statistics
import subprocess
import sys

import pytest

import chunkwise

HEAVY = {"torch", "vllm", "polars", "transformers", "numpy", "scipy", "plotly"}


def test_public_surface() -> None:
    assert sorted(chunkwise.__all__) == [
        "ChunkwiseError",
        "LLM",
        "PacedScheduler",
        "Settings",
        "__version__",
        "create_vllm_enhanced_compiler",
    ]
    assert all(hasattr(chunkwise, name) for name in chunkwise.__all__ if name != "LLM")
    assert dir(chunkwise) == sorted(chunkwise.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = chunkwise.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", ["chunkwise", "chunkwise.cli", "chunkwise.engine.compat"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not HEAVY & set(loaded.stdout.split())


def test_help_answers_at_once() -> None:
    # Processor time, which is the waiting time of one thread on a free core: what
    # else runs on the machine is not ours to test.
    seconds = []
    for _ in range(10):
        before = os.times()
        command = [sys.executable, "-m", "chunkwise", "--help"]
        subprocess.run(command, capture_output=True, check=True)
        after = os.times()
        used = after.children_user + after.children_system
        seconds.append(used - before.children_user - before.children_system)
    assert 0.02 < statistics.median(seconds) < 0.5
