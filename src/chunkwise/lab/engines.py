"""How the demos start an engine on whatever machine they find."""

from pathlib import Path
from typing import Any

from chunkwise.engine import compat
from chunkwise.errors import UserMistake
from chunkwise.lab import models
from chunkwise.settings import Settings

CPU_KV_BYTES = 2 * 2**30


def progress(text: str, done: float) -> dict[str, Any]:
    """Return the event that moves the parent's progress bar."""
    return {"event": "progress", "text": text, "done": done}


def demo_model(named: str | None) -> str:
    """Return the model to run; without a name, a small real one, made on first use."""
    return str(models.smollm2()) if named is None else str(Path(named).expanduser())


def demo_options(model: str, settings: Settings) -> tuple[Settings, dict[str, Any]]:
    """Return settings and engine arguments fit for a short run on this machine."""
    if compat.on_cpu():
        # Compiling takes minutes for every new budget on a CPU and changes how
        # long a step takes, not what is in it. The KV cache would otherwise
        # take most of the machine's memory.
        settings = settings.model_copy(
            update={"enforce_eager": True, "kv_cache_memory_bytes": CPU_KV_BYTES}
        )
    return settings, {"load_format": "dummy"} if without_weights(model) else {}


def without_weights(model: str) -> bool:
    """Tell whether a local model is a bare configuration, to be run with random weights."""
    home = Path(model)
    return home.is_dir() and not any(
        file.suffix in {".safetensors", ".bin", ".pt"} for file in home.iterdir()
    )


def model_context(model: str) -> int:
    """Return the longest sequence that the model takes."""
    return compat.resolve(model, Settings()).max_model_len


def refuse_missing_model(model: str) -> None:
    """Raise a sentence for a path that holds no model, before anything is started."""
    home = Path(model).expanduser()
    if "://" in model:  # a bucket: vLLM's to find
        return
    looks_like_path = model.startswith(("/", ".", "~")) or model.count("/") > 1
    if home.is_dir():
        if not (home / "config.json").is_file():
            raise UserMistake(
                f"{model} has no config.json: give the directory of a Hugging Face model."
            )
    elif looks_like_path or home.exists():
        raise UserMistake(
            f"There is no model at {model}: give a directory with a config.json, or a Hugging "
            f"Face name such as Qwen/Qwen3-0.6B."
        )
