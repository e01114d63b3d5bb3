"""One engine for a module: vLLM keeps state per process, so one engine's end is every engine's."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from chunkwise.engine.stepper import Stepper
from chunkwise.settings import Settings


@pytest.fixture(scope="module")
def small_budget_engine(smollm2: Path) -> Iterator[Stepper]:
    """SmolLM2 in float32 with a budget of 256 and a cap of 64, stepped in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        settings = Settings(
            max_num_batched_tokens=256,
            long_prefill_token_threshold=64,
            max_num_seqs=16,
            max_model_len=2048,
            kv_cache_memory_bytes=2**30,
            dtype="float32",
            enforce_eager=True,
        )
        engine = Stepper(str(smollm2), settings)
        yield engine
        engine.close()


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What the plug-in logs as a warning."""
    found: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    log = logging.getLogger("vllm.chunkwise")
    keep = Keep(logging.WARNING)
    log.addHandler(keep)
    yield found
    log.removeHandler(keep)
