"""How much memory there is for scoring prompts, asked before an engine is built."""

from collections.abc import Mapping, Sequence
from typing import Any

from chunkwise.cost.memory import Device, refuse_budget
from chunkwise.cost.shape import in_dtype, read_shape
from chunkwise.engine import asking, compat
from chunkwise.engine.decide import ScoringRoom
from chunkwise.engine.room import scoring_limit
from chunkwise.errors import UserMistake


def scores_prompts(params: Any) -> bool:
    """Tell whether any of these sampling parameters asks for the prompt's log-probabilities."""
    several = params if isinstance(params, Sequence) else [params]
    return any(getattr(item, "prompt_logprobs", None) is not None for item in several)


def scoring_room(
    model: str, kwargs: Mapping[str, Any], limit: int | None, params: Any
) -> ScoringRoom | None:
    """Return what scoring may take, or None where no prompt is scored.

    A budget that the user set and that exceeds the user's own limit is refused.
    """
    if not scores_prompts(params):
        return None
    dtype = str(kwargs.get("dtype") or "auto").removeprefix("torch.")
    try:
        shape = in_dtype(read_shape(model), dtype)
    except UserMistake as error:  # not a mistake here: vLLM may know the model all the same
        asking.logger().warning("Chunkwise cannot size prompt scoring: %s", error)
        return None
    device: Device = "cpu" if compat.on_cpu() else "gpu"
    budget = kwargs.get("max_num_batched_tokens")
    if limit is not None and budget:
        refuse_budget(shape, budget, limit, kwargs.get("max_model_len"), device)
    if limit is None:
        limit = scoring_limit(
            shape, kwargs.get("gpu_memory_utilization"), kwargs.get("kv_cache_memory_bytes")
        )
    return ScoringRoom(shape, limit, device)
