"""What the plug-in reads of a live scheduler: the second half of `compat`.

Invariant: as in `compat`, things are probed, not looked up by version. What can
be missing is probed once, when the scheduler is built, and named in `blind`;
what cannot is a reason to leave vLLM alone (`why_not`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

from chunkwise.engine import compat

Read = Callable[[Any], Any]

_OUTPUT = (
    "num_scheduled_tokens",
    "total_num_scheduled_tokens",
    "scheduled_new_reqs",
    "scheduled_cached_reqs",
    "finished_req_ids",
)
_REQUEST = ("num_computed_tokens", "num_prompt_tokens", "arrival_time", "status")
_SCHEDULER = ("running", "requests", "finished_req_ids")


@dataclass(frozen=True, slots=True)
class Sight:
    """What can be seen besides the essentials; a blind one returns nothing at all."""

    kv_use: Callable[[Any], float]  # of a scheduler
    waiting: Callable[[Any], int]
    preempted: Callable[[Any], Iterable[str] | None]  # of a step's output
    resumed: Callable[[Any], Iterable[str] | None]
    block_hashes: Callable[[Any], list[bytes]]  # of a request
    block_size: int
    blind: tuple[str, ...]


def why_not(vllm_config: Any, kv_cache_config: Any) -> str | None:
    """Return why this engine should be left alone; None if it is one that was tested."""
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.request import Request

    parallel, model = vllm_config.parallel_config, vllm_config.model_config
    untested = (
        ("pipeline parallelism", parallel.pipeline_parallel_size > 1),
        ("a KV connector", vllm_config.kv_transfer_config is not None),
        (
            "an encoder-cache connector",
            getattr(vllm_config, "ec_transfer_config", None) is not None,
        ),
        ("a multimodal model", model.is_multimodal_model),
        ("an encoder-decoder model", model.is_encoder_decoder),
        ("a pooling model", model.runner_type == "pooling"),
        ("a diffusion model", getattr(vllm_config, "diffusion_config", None) is not None),
        ("a model with mamba layers", getattr(kv_cache_config, "has_mamba_layers", False)),
        (
            "a mixture of experts with data parallelism",
            parallel.data_parallel_size > 1 and model.is_moe,
        ),
    )
    for what, present in untested:
        if present:
            return f"{what} is not among what was tested"
    has = {field.name for field in fields(SchedulerOutput)}
    gone = [name for name in _OUTPUT if name not in has]
    gone += [n for n in _SCHEDULER if n not in compat.names_in(Scheduler.__init__)]
    gone += [n for n in _REQUEST if n not in compat.names_in(Request.__init__)]
    if gone:
        return f"this vLLM has no {', '.join(gone)}"
    return None


def sight_of(scheduler: Any) -> Sight:
    """Probe what this scheduler lets us see."""
    from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput
    from vllm.v1.request import Request

    blind: list[str] = []

    def probed(what: str, probe: Callable[[], bool], use: Read, otherwise: Read) -> Read:
        if compat.holds(probe):
            return use
        blind.append(what)
        return otherwise

    size = getattr(scheduler, "hash_block_size", None) or getattr(scheduler, "block_size", None)
    return Sight(
        probed(
            "KV use",
            lambda: 0.0 <= scheduler.kv_cache_manager.usage <= 1.0,
            lambda scheduler: scheduler.kv_cache_manager.usage,
            lambda scheduler: 0.0,
        ),
        probed(
            "waiting requests",
            lambda: len(scheduler.waiting) >= 0,
            lambda scheduler: len(scheduler.waiting),
            lambda scheduler: 0,
        ),
        probed(
            "preemptions",
            lambda: "preempted_req_ids" in _field_names(SchedulerOutput),
            lambda output: output.preempted_req_ids,
            lambda output: None,
        ),
        probed(
            "resumed requests",
            lambda: "resumed_req_ids" in _field_names(CachedRequestData),
            lambda output: output.scheduled_cached_reqs.resumed_req_ids,
            lambda output: None,
        ),
        probed(
            "prefix blocks",
            lambda: type(size) is int and "block_hashes" in compat.names_in(Request.__init__),
            lambda request: request.block_hashes[: request.num_prompt_tokens // size],
            lambda request: [],
        ),
        size if type(size) is int else 16,
        tuple(blind),
    )


def engine_index(vllm_config: Any) -> int:
    """Return which of the data-parallel engines this is."""
    parallel = vllm_config.parallel_config
    return int(getattr(parallel, "data_parallel_index", 0) or 0)


def _field_names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}
