"""The vLLM arguments that decide chunked prefill, checked before an engine starts.

Invariant: a `Settings` holds only allow-listed arguments under vLLM's own names
(nothing that loads code, such as `trust_remote_code` or a scheduler class, can
come in through a file), and no combination that every vLLM refuses. `None`
means "vLLM's default". What only the *installed* vLLM can know is checked by
`chunkwise.engine.compat.resolve`.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from chunkwise.errors import UserMistake
from chunkwise.files import read_small

MAX_FILE_BYTES = 64 * 1024

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Word = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,32}$")]


class Settings(BaseModel):
    """vLLM's arguments under vLLM's names. Usage: `Settings(max_num_batched_tokens=2048)`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    # The step: how many tokens it may carry, and how many of them one prompt may take.
    max_num_batched_tokens: Count | None = None
    max_num_scheduled_tokens: Count | None = None
    enable_chunked_prefill: bool | None = None
    long_prefill_token_threshold: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    long_prefill_token_threshold_adaptive: bool | None = None

    # Who may run, and in which order.
    max_num_seqs: Count | None = None
    max_num_active_seqs: Count | None = None
    scheduling_policy: Literal["fcfs", "priority"] | None = None
    async_scheduling: bool | None = None

    # Memory.
    max_model_len: Count | None = None
    enable_prefix_caching: bool | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    kv_cache_memory_bytes: Annotated[int, Field(ge=1)] | None = None
    kv_cache_dtype: Word | None = None
    block_size: Annotated[int, Field(ge=1, le=4096)] | None = None
    scheduler_reserve_full_isl: bool | None = None
    watermark: Annotated[float, Field(ge=0, lt=1)] | None = None

    # The model's numbers and where they are computed.
    dtype: Literal["auto", "half", "float16", "bfloat16", "float", "float32"] | None = None
    tensor_parallel_size: Count | None = None
    pipeline_parallel_size: Count | None = None
    data_parallel_size: Count | None = None

    # Compilation and graphs.
    enforce_eager: bool | None = None
    optimization_level: Annotated[int, Field(ge=0, le=3)] | None = None
    cudagraph_capture_sizes: Annotated[tuple[Count, ...], Field(strict=False)] | None = None
    max_cudagraph_capture_size: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _refuse_what_every_vllm_refuses(self) -> Self:
        budget, seqs = self.max_num_batched_tokens, self.max_num_seqs
        length, threshold = self.max_model_len, self.long_prefill_token_threshold
        if budget is not None and seqs is not None and budget < seqs:
            raise ValueError(
                f"max_num_batched_tokens ({budget}) is below max_num_seqs ({seqs}), but each "
                f"running request needs a token of the step: raise the first or lower the second"
            )
        if budget is not None and (self.max_num_scheduled_tokens or 0) > budget:
            raise ValueError(
                f"max_num_scheduled_tokens ({self.max_num_scheduled_tokens}) is above "
                f"max_num_batched_tokens ({budget}), which sizes the step: lower the first"
            )
        if seqs is not None and (self.max_num_active_seqs or 0) > seqs:
            raise ValueError(
                f"max_num_active_seqs ({self.max_num_active_seqs}) is above max_num_seqs "
                f"({seqs}), which sizes the engine: lower the first or raise the second"
            )
        if length is not None and (threshold or 0) > length:
            raise ValueError(
                f"long_prefill_token_threshold ({threshold}) is above max_model_len ({length}), "
                f"so no prompt could ever reach it: lower it, or use 0 for no cap"
            )
        if self.enable_chunked_prefill is False and budget and length and budget < length:
            raise ValueError(
                f"with chunked prefill off the longest prompt must fit one step: raise "
                f"max_num_batched_tokens ({budget}) to max_model_len ({length})"
            )
        sizes, largest = self.cudagraph_capture_sizes, self.max_cudagraph_capture_size
        if sizes and largest is not None and max(sizes) != largest:
            raise ValueError(
                f"max_cudagraph_capture_size ({largest}) is not the largest of "
                f"cudagraph_capture_sizes ({max(sizes)}): leave one of the two out"
            )
        return self

    @classmethod
    def parse(cls, values: Mapping[str, Any], source: str = "the settings") -> Self:
        """Build from plain data, with a sentence for each mistake. Usage: `Settings.parse({…})`."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise UserMistake(f"In {source}: {_sentences(error)}.") from None

    @classmethod
    def from_yaml(cls, path: Path) -> Self:
        """Read a settings file. Usage: `Settings.from_yaml(Path("settings.yaml"))`."""
        return cls.parse(read_mapping(path), source=str(path))

    def to_yaml(self) -> str:
        """Return the settings as a file's text, defaults left out."""
        return yaml.safe_dump(self.to_llm() or {}, sort_keys=False)

    def to_llm(self) -> dict[str, Any]:
        """Return keywords for `vllm.LLM` or `EngineArgs`. Usage: `LLM(model, **s.to_llm())`."""
        chosen = self.model_dump(exclude_none=True)
        if "cudagraph_capture_sizes" in chosen:
            chosen["cudagraph_capture_sizes"] = list(chosen["cudagraph_capture_sizes"])
        return chosen

    def to_args(self) -> list[str]:
        """Return arguments for vLLM's command line, one list item each."""
        args: list[str] = []
        for name, value in self.to_llm().items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                args.append(f"--{flag}" if value else f"--no-{flag}")
            elif isinstance(value, list):
                args += [f"--{flag}", *map(str, value)]
            else:
                args += [f"--{flag}", str(value)]
        return args

    def to_command(self, model: str) -> str:
        """Return a line to paste into a shell. Usage: `print(s.to_command("my-model"))`."""
        return shlex.join(["vllm", "serve", model, *self.to_args()])


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a small YAML file that holds names and values, nothing else."""
    text = read_small(path, MAX_FILE_BYTES, "a settings file")
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise UserMistake(f"{path} is not valid YAML ({reason}).") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UserMistake(f"{path} must hold lines of the form `name: value`.")
    return values


def _sentences(error: ValidationError) -> str:
    parts = []
    # include_input=False: the input is hostile, and an echo of it has no bound.
    for item in error.errors(include_url=False, include_input=False):
        name = ".".join(str(part) for part in item["loc"])[:80]
        if item["type"] == "extra_forbidden":
            parts.append(f"`{name}` is not a setting that Chunkwise takes")
        elif name:
            parts.append(f"`{name}`: {item['msg'][:1].lower()}{item['msg'][1:]}")
        else:
            parts.append(item["msg"].removeprefix("Value error, "))
    return "; ".join(parts[:5])
