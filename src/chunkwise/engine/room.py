"""Refuse a model that cannot fit into this machine's memory, before loading it.

On a GPU the allocator says no and the process lives. On a CPU the kernel says
yes until it kills something, so the answer has to come first.
"""

from pathlib import Path
from typing import Any

from chunkwise.cost.shape import ModelShape
from chunkwise.engine import compat
from chunkwise.errors import EngineTrouble
from chunkwise.sizes import say_bytes


def refuse_what_cannot_fit(config: Any) -> None:
    """Raise a sentence if weights and KV cache exceed the memory that is free."""
    if not compat.on_cpu():
        return
    weights = weight_bytes(config)
    kv = config.cache_config.kv_cache_memory_bytes or 0
    free = free_bytes()
    if weights + kv > free:
        raise EngineTrouble(
            f"The model needs more memory than there is: {say_bytes(weights)} of weights and "
            f"{say_bytes(kv)} of KV cache, with {say_bytes(free)} free. Take a smaller "
            f"model or dtype."
        )


def weight_bytes(config: Any) -> int:
    """Return what the weights will take in memory, from the model's shape alone."""
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):  # shapes without storage
            model = AutoModelForCausalLM.from_config(config.model_config.hf_config)
    except (ValueError, KeyError, ImportError):  # an architecture that only vLLM knows
        return _file_bytes(Path(config.model_config.model))
    numbers = sum(parameter.numel() for parameter in model.parameters())
    return int(numbers * config.model_config.dtype.itemsize)


def scoring_limit(shape: ModelShape, utilization: float | None, kv_bytes: int | None) -> int:
    """Return the memory that scoring prompts may take: what vLLM leaves of the device's.

    vLLM fills its share at start and never measures prompt scoring, so only what
    is outside the share is there for it; a fifth of that is left for the rest.
    """
    if compat.on_cpu():
        reserved = shape.weights * shape.dtype_bytes + (kv_bytes or 0)
        return max(0, int(0.8 * (free_bytes() - reserved)))
    from vllm.platforms import current_platform

    total = current_platform.get_device_total_memory()
    return int(0.8 * total * (1 - (utilization or 0.92)))


def free_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the memory that can be had without swapping."""
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise EngineTrouble(f"{meminfo} does not tell how much memory is available.")


def _file_bytes(model: Path) -> int:
    return sum(file.stat().st_size for file in model.glob("*.safetensors"))
