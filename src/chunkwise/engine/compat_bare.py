"""What building a scheduler by itself needs of the installed vLLM: a part of `compat`.

Invariant: as in `compat`, arguments are probed by signature, never by version.
"""

import inspect
from typing import Any

from chunkwise.errors import UserMistake


def build_scheduler(config: Any, scheduler_cls: str | None = None) -> Any:
    """Build the scheduler that vLLM would take: its own, or one named by a dotted path."""
    from vllm.v1.structured_output import StructuredOutputManager

    config.scheduler_config.scheduler_cls = scheduler_cls
    try:
        chosen = config.scheduler_config.get_scheduler_cls()
    except (ImportError, AttributeError, ValueError) as error:
        raise UserMistake(
            f"There is no scheduler class {str(scheduler_cls)[:200]} ({error}): give a dotted path "
            f"such as chunkwise.PacedScheduler."
        ) from None
    size = config.cache_config.block_size
    more: dict[str, Any] = {}
    if "hash_block_size" in _stock_arguments():
        more["hash_block_size"] = size
    return chosen(
        vllm_config=config,
        kv_cache_config=kv_cache_config(config),
        structured_output_manager=StructuredOutputManager(config),
        block_size=size,
        **more,
    )


def kv_cache_config(config: Any) -> Any:
    """Return one group of full-attention layers over the pool's blocks."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    spec = FullAttentionSpec(
        block_size=config.cache_config.block_size,
        num_kv_heads=1,
        head_size=64,
        dtype=torch.bfloat16,
    )
    return KVCacheConfig(
        num_blocks=config.cache_config.num_gpu_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )


def _stock_arguments() -> frozenset[str]:
    from vllm.v1.core.sched.scheduler import Scheduler

    return frozenset(inspect.signature(Scheduler).parameters)
