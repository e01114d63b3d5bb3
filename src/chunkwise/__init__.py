"""Chunkwise: decide chunked prefill for your own vLLM traffic, prove it, keep it.

    from chunkwise import LLM, Settings
    LLM("my-model").generate(prompts)
    Settings(max_num_batched_tokens=2048).to_command("my-model")

Invariant: importing this package loads neither torch nor vllm nor any extra;
public names are resolved on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from chunkwise._version import __version__

if TYPE_CHECKING:
    from chunkwise.engine.compile import create_vllm_enhanced_compiler
    from chunkwise.engine.llm import LLM
    from chunkwise.engine.scheduler import PacedScheduler
    from chunkwise.errors import ChunkwiseError
    from chunkwise.settings import Settings

# Public name -> the module that holds it.
_HOMES = {
    "ChunkwiseError": "chunkwise.errors",
    "LLM": "chunkwise.engine.llm",
    "PacedScheduler": "chunkwise.engine.scheduler",
    "Settings": "chunkwise.settings",
    "create_vllm_enhanced_compiler": "chunkwise.engine.compile",
}

__all__ = [
    "LLM",
    "ChunkwiseError",
    "PacedScheduler",
    "Settings",
    "__version__",
    "create_vllm_enhanced_compiler",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'chunkwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
