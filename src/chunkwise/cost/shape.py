"""A model's shape, read from a bare Hugging Face config.json.

The file comes from strangers: its size is bounded, every number is checked and
bounded, nothing in it is run. Invariant: a `ModelShape` is complete, so that the
arithmetic in `memory.py` never has to guess; what we cannot count (state-space
layers) is refused in a sentence rather than counted wrongly.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from chunkwise.errors import UserMistake
from chunkwise.files import read_small

MAX_FILE_BYTES = 4 * 2**20
DTYPE_BYTES = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
_STATEFUL = ("mamba", "linear", "recurrent", "conv", "rwkv", "ssm")


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the byte counts need to know about a model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int  # width of the MLP, for an MoE of the experts that one token visits
    vocab: int
    max_len: int
    dtype: str
    weights: int  # parameters
    # Numbers kept per token and layer; MLA keeps one compressed vector.
    kv_numbers: int
    mla: bool = False
    tied: bool = False  # one matrix for input and output
    windowed_layers: int = 0

    @property
    def dtype_bytes(self) -> int:
        """Bytes of one number in the model's own dtype."""
        return DTYPE_BYTES[self.dtype]


def _named(*names: str, **limits: Any) -> Any:
    return Field(validation_alias=AliasChoices(*names), **limits)


_Width = Annotated[int, Field(ge=1, le=2**24)]


class _Config(BaseModel):
    """The names that model families use for the same numbers."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model_type: str = ""
    layers: int = _named("num_hidden_layers", "n_layer", "num_layers", ge=1, le=4096)
    hidden: _Width = _named("hidden_size", "n_embd", "d_model")
    heads: _Width = _named("num_attention_heads", "n_head", "num_heads")
    kv_heads: _Width | None = _named("num_key_value_heads", "multi_query_group_num", default=None)
    head_dim: _Width | None = None
    inner: _Width | None = _named("intermediate_size", "n_inner", "ffn_dim", default=None)
    vocab: _Width = _named("vocab_size", "padded_vocab_size")
    max_len: int = _named(
        "max_position_embeddings", "n_positions", "seq_length", default=2048, ge=1, le=2**30
    )
    dtype: str | None = _named("dtype", "torch_dtype", default=None)
    tied: bool = _named("tie_word_embeddings", default=False)
    experts: int | None = _named(
        "num_experts", "num_local_experts", "n_routed_experts", default=None, ge=0, le=2**16
    )
    experts_per_token: int | None = _named(
        "num_experts_per_tok", "experts_per_token", default=None, ge=0, le=2**16
    )
    expert_inner: _Width | None = _named("moe_intermediate_size", default=None)
    kv_lora_rank: int | None = _named("kv_lora_rank", default=None, ge=1, le=2**20)
    rope_dim: int = _named("qk_rope_head_dim", default=0, ge=0, le=2**16)
    layer_types: tuple[str, ...] | None = Field(default=None, max_length=4096)


def read_shape(model: str) -> ModelShape:
    """Read a model's shape. Usage: `read_shape("/models/llama")`, a file, or a cached name."""
    path = _config_file(model)
    text = read_small(path, MAX_FILE_BYTES, "a model's config")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise UserMistake(f"{path} is not valid JSON: give a model's config.json.") from None
    if not isinstance(values, dict):
        raise UserMistake(f"{path} does not hold a model's configuration.")
    return shape_of(values, source=str(path))


def in_dtype(shape: ModelShape, dtype: str = "auto") -> ModelShape:
    """Return the shape in the dtype that vLLM runs it in. Usage: `in_dtype(shape, "float32")`."""
    if dtype == "auto":  # vLLM makes 16 bits of float32 unless it is told otherwise
        dtype = "bfloat16" if shape.dtype_bytes == 4 else shape.dtype
    if dtype not in DTYPE_BYTES:
        raise UserMistake(f"`{dtype[:40]}` is not a dtype: auto, {', '.join(DTYPE_BYTES)}.")
    return replace(shape, dtype=dtype)


def shape_of(values: Mapping[str, Any], source: str = "the config") -> ModelShape:
    """Return the shape that a config describes. Usage: `shape_of(json.loads(text))`."""
    for inside in ("text_config", "llm_config", "language_config"):  # multimodal models
        if isinstance(values.get(inside), dict):
            # What belongs to the whole model, such as the dtype, stays outside.
            values = {"dtype": values.get("dtype", values.get("torch_dtype"))} | values[inside]
    try:
        config = _Config.model_validate({k: v for k, v in values.items() if v is not None})
    except ValidationError as error:
        item = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in item["loc"])[:60]
        raise UserMistake(
            f"{source} is not a language model's config: `{name}`: {item['msg'].lower()}."
        ) from None
    kinds = config.layer_types or ()
    told = [config.model_type, *kinds]
    if any(word in kind for kind in told for word in _STATEFUL):
        raise UserMistake(
            f"{source}: this model keeps a state beside (or instead of) a KV cache "
            f"({config.model_type[:40] or 'unknown type'}), which is not counted here."
        )
    return _complete(config, sum("sliding" in kind for kind in kinds))


def _complete(config: _Config, windowed: int) -> ModelShape:
    kv_heads = config.kv_heads or config.heads
    head_dim = config.head_dim or max(1, config.hidden // config.heads)
    inner = config.inner or 4 * config.hidden
    gated = config.model_type not in {"gpt2", "opt", "gpt_neox", "bloom", "gpt_bigcode", "falcon"}
    per_inner = (3 if gated else 2) * config.hidden
    attention = 2 * config.hidden * head_dim * (config.heads + kv_heads)
    visited, mlp = inner, per_inner * inner
    if config.experts:
        width = config.expert_inner or inner
        visited = width * (config.experts_per_token or 1)
        mlp = per_inner * width * config.experts + config.hidden * config.experts
    weights = config.layers * (attention + mlp + 2 * config.hidden)
    weights += config.vocab * config.hidden * (1 if config.tied else 2) + config.hidden
    mla = config.kv_lora_rank is not None
    dtype = config.dtype or "float32"  # what transformers assumes
    return ModelShape(
        layers=config.layers,
        hidden=config.hidden,
        heads=config.heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        inner=visited,
        vocab=config.vocab,
        max_len=config.max_len,
        # Quantised weights are unpacked into 16 bits to be computed with.
        dtype=dtype if dtype in DTYPE_BYTES else "bfloat16",
        weights=weights,
        kv_numbers=config.kv_lora_rank + config.rope_dim
        if config.kv_lora_rank
        else 2 * kv_heads * head_dim,
        mla=mla,
        tied=config.tied,
        windowed_layers=windowed,
    )


def _config_file(model: str) -> Path:
    home = Path(model).expanduser()
    if home.is_file():
        return home
    if home.is_dir():
        if (home / "config.json").is_file():
            return home / "config.json"
        raise UserMistake(
            f"{model} has no config.json: give the directory of a Hugging Face model."
        )
    if found := _cached(model):
        return found
    raise UserMistake(
        f"There is no model at {model}, and no config of that name in the Hugging Face cache: "
        f"give a directory or a config.json."
    )


def _cached(name: str) -> Path | None:
    """Find a name in the Hugging Face cache; nothing is fetched."""
    if name.count("/") > 1 or ".." in name:
        return None
    root = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    hub = Path(root) / "hub" / f"models--{name.replace('/', '--')}" / "snapshots"
    found = sorted(hub.glob("*/config.json"), key=lambda file: file.stat().st_mtime)
    return found[-1] if found else None
