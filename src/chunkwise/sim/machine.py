"""From what a person names, a GPU or a calibration, to the machine that is simulated.

Invariant: what vLLM would choose by itself on that machine (budget, requests at
a time) is written out in the settings, because the vLLM that simulates runs on
another one; and every assumption is a note.
"""

from pathlib import Path

from chunkwise.cost import calibrations, silicon
from chunkwise.cost.memory import pool_from_bytes
from chunkwise.cost.shape import DTYPE_BYTES, ModelShape, in_dtype, read_shape
from chunkwise.errors import UserMistake
from chunkwise.settings import Settings
from chunkwise.sim.run import DEFAULT_BLOCK, Machine
from chunkwise.sizes import GIB

FRACTION = 0.92  # of a device's memory, vLLM's default
CPU_SERVER = (2048, 128)  # budget and requests at a time


def on_gpu(
    model: str, system: str, settings: Settings, request_latency: float = 0.0
) -> tuple[Machine, Settings]:
    """Return a GPU's machine, and the settings with vLLM's own defaults there written out."""
    tp = settings.tensor_parallel_size or 1
    shape = read_shape(str(silicon.config_file(model)))
    cost = silicon.load(model, system, tp)
    total, _ = silicon.device_memory(system, tp)
    settings = _filled(settings, *gpu_defaults(system, total))
    if settings.kv_cache_memory_bytes is not None:
        tokens = pool_from_bytes(shape, settings.kv_cache_memory_bytes, tp=tp).tokens
    else:
        tokens = silicon.kv_pool(
            model,
            system,
            tp,
            settings.gpu_memory_utilization or FRACTION,
            settings.max_num_batched_tokens or 0,
            settings.max_num_seqs or 0,
        ).tokens
    if not tokens:
        raise UserMistake(f"{model} leaves no KV cache on {tp} x {system}: raise --tp.")
    return Machine(cost, tokens, shape.max_len, request_latency), settings


def calibrated(
    model: str, file: Path, settings: Settings, request_latency: float = 0.0
) -> tuple[Machine, Settings]:
    """Return the machine that a calibration was made on; the KV cache's size has to be said."""
    cost = calibrations.load(file)
    shape = in_dtype(read_shape(model), settings.dtype or "auto")
    if settings.kv_cache_memory_bytes is None:
        raise UserMistake(
            "A calibration does not say how much KV cache the server has: give --kv-cache, such "
            "as 2GiB."
        )
    tokens = _pool(shape, settings)
    settings = _filled(settings, *CPU_SERVER)
    if settings.async_scheduling is None and cost.provenance.device.startswith("cpu"):
        settings = settings.model_copy(update={"async_scheduling": False})
    return Machine(cost, tokens, shape.max_len, request_latency, cost.scatter), settings


def gpu_defaults(system: str, total_bytes: int) -> tuple[int, int]:
    """Return a server's budget and requests at a time, as vLLM chooses them by memory."""
    if total_bytes >= 160 * GIB:
        return 16_384, 1024
    if total_bytes >= 70 * GIB and not system.startswith("a100"):
        return 8192, 1024
    return 2048, 256


def _filled(settings: Settings, budget: int, seqs: int) -> Settings:
    budget = settings.max_num_batched_tokens or budget
    return Settings(
        **{
            **settings.to_llm(),
            "max_num_batched_tokens": budget,
            "max_num_seqs": settings.max_num_seqs or min(seqs, budget),
        }
    )


def _pool(shape: ModelShape, settings: Settings) -> int:
    size = settings.kv_cache_memory_bytes or 0
    kind = settings.kv_cache_dtype
    number = DTYPE_BYTES.get(kind or "", None) if kind not in (None, "auto") else None
    if kind is not None and kind.startswith("fp8"):
        number = 1
    tp = settings.tensor_parallel_size or 1
    block = settings.block_size or DEFAULT_BLOCK
    return pool_from_bytes(shape, size, block, number, tp).tokens
