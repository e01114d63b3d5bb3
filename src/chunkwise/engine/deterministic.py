"""The deterministic switch: every prompt is cut at the same places in every run.

How a prompt is cut changes the rounding of its numbers, and vLLM cuts it where
the step happens to be full. With fixed pieces and no prefix cache, the cuts
depend on the prompt alone. What else can differ (the batch around it, on
kernels that are not batch-invariant) is vLLM's: see VLLM_BATCH_INVARIANT.
"""

from typing import Any

from chunkwise.engine import compat
from chunkwise.engine.pieces import Pieces
from chunkwise.errors import UserMistake

BLOCK = 128


def fixed(chosen: dict[str, Any], given: dict[str, Any]) -> tuple[dict[str, Any], Pieces]:
    """Return the settings and the piece for fixed cuts. Usage: `fixed(settings, kwargs)`."""
    usual = next(item for item in compat.defaults() if item.usage == "llm")
    merged = {**given, **chosen}
    budget = merged.get("max_num_batched_tokens") or usual.budget
    seqs = merged.get("max_num_seqs") or min(usual.seqs, budget)
    if merged.get("enable_prefix_caching"):
        raise UserMistake(
            "deterministic=True needs enable_prefix_caching off: what is cached depends on what "
            "came before."
        )
    # The largest whole number of blocks that fits beside every decode.
    step = merged.get("max_num_scheduled_tokens") or budget
    size = min(merged.get("long_prefill_token_threshold") or step, step - seqs)
    size = size // BLOCK * BLOCK
    if size <= 0:
        raise UserMistake(
            f"deterministic=True needs a budget of {seqs + BLOCK} or more beside "
            f"max_num_seqs={seqs}: raise max_num_batched_tokens or lower max_num_seqs."
        )
    settings = {
        **chosen,
        "max_num_batched_tokens": budget,
        "max_num_seqs": seqs,
        "enable_prefix_caching": False,
        "async_scheduling": False,
    }
    return settings, Pieces(size, all_prompts=True)
