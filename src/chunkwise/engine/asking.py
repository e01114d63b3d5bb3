"""Small questions to vLLM that the offline engine asks before it is built."""

from dataclasses import fields
from typing import Any

from chunkwise.engine import compat


def logger() -> Any:
    """Return a logger whose lines appear among vLLM's own."""
    compat.load_vllm()
    from vllm.logger import init_logger

    return init_logger("vllm.chunkwise")


def argument_defaults() -> dict[str, Any]:
    """Return what each engine argument is when nobody sets it."""
    compat.load_vllm()
    from vllm.engine.arg_utils import EngineArgs

    return {field.name: field.default for field in fields(EngineArgs)}


def model_config(arguments: dict[str, Any]) -> Any:
    """Return vLLM's configuration of a model alone; no engine is built."""
    compat.load_vllm()
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(**arguments).create_model_config()
