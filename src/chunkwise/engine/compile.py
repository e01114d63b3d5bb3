"""Ahead of time: an engine built, compiled and captured for inputs like the ones to come.

    compiler = create_vllm_enhanced_compiler()
    model = compiler.compile_model_aot("my-model", example_inputs)
    model(prompts); model.get_chunking_stats()

vLLM compiles; this chooses what to ask of it. Its compile cache is kept between
starts as it is by default, and every choice that is part of the cache's key is
made the same way for the same inputs. Invariant: any failure ends in a plain
engine and a warning, never in an exception that a plain engine would not raise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chunkwise.engine import asking, compat
from chunkwise.engine.counters import ChunkingStats
from chunkwise.settings import Settings

MODES = {"none": 0, "stock": 1, "dynamo": 2, "vllm": 3}
# vLLM captures no graph above it by default: larger steps gain nothing from one.
LARGEST_CAPTURE = 512


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """A callable engine. Usage: `model(["Hello"], sampling_params)`."""

    llm: Any
    notes: tuple[str, ...]  # what was asked for and left out, and why

    def __call__(self, inputs: Any, sampling_params: Any = None, **kwargs: Any) -> Any:
        """Generate, as `vllm.LLM.generate` does; a tokenizer's batch is taken too."""
        return self.llm.generate(as_prompts(inputs), sampling_params, **kwargs)

    def get_chunking_stats(self) -> ChunkingStats | None:
        """Return what the engine did so far; None from a plain engine."""
        counted = getattr(self.llm, "chunking_stats", None)
        return counted() if counted else None


@dataclass(frozen=True, slots=True)
class Compiler:
    """What to ask of vLLM; made by `create_vllm_enhanced_compiler`."""

    enable_cuda_graphs: bool = True
    enable_chunked_prefill: bool = True
    chunking_threshold: int | None = None  # None: from the example inputs

    def compile_model_aot(
        self,
        model: Any,
        example_inputs: Any,
        config: Mapping[str, Any] | None = None,
        mode: int | str | None = None,
    ) -> CompiledModel:
        """Build the engine now. `config` holds vLLM's arguments, which win over ours."""
        compat.load_vllm()
        name = model_name(model)
        given = dict(config or {})
        try:
            return self._build(name, as_prompts(example_inputs), given, mode)
        except Exception as error:
            asking.logger().warning(
                "Chunkwise cannot compile ahead of time (%r): vLLM's own engine is built.", error
            )
            from vllm import LLM

            return CompiledModel(LLM(name, **given), (f"everything: {error!r}",))

    def _build(
        self, name: str, inputs: Sequence[Any], given: dict[str, Any], mode: int | str | None
    ) -> CompiledModel:
        from chunkwise.engine.llm import LLM

        asked: dict[str, Any] = {}
        if not self.enable_chunked_prefill:
            # vLLM takes "off" only where the longest possible prompt fits a step.
            length = given.get("max_model_len") or compat.resolve(name, Settings()).max_model_len
            asked = {"enable_chunked_prefill": False, "max_num_batched_tokens": length}
        elif self.chunking_threshold is not None:
            asked = {"long_prefill_token_threshold": self.chunking_threshold}
        notes: list[str] = []
        kwargs = {**asked, **given}
        if "compilation_config" not in given:
            kwargs["compilation_config"] = self._compilation(given, mode, notes)
        llm = LLM(name, **kwargs)
        llm.build_for(inputs)
        for note in notes:
            asking.logger().info("Chunkwise leaves out %s", note)
        return CompiledModel(llm, tuple(notes))

    def _compilation(
        self, given: Mapping[str, Any], mode: int | str | None, notes: list[str]
    ) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        if given.get("enforce_eager"):
            notes.append("compilation and graphs: enforce_eager is set.")
        elif mode is not None:
            chosen["mode"] = compilation_mode(mode)
        if compat.on_cpu():
            if self.enable_cuda_graphs:
                notes.append("CUDA graphs: this build of vLLM computes on the CPU.")
        elif not self.enable_cuda_graphs:
            chosen["cudagraph_mode"] = "NONE"
        else:
            seqs = given.get("max_num_seqs") or 256
            chosen["cudagraph_capture_sizes"] = capture_sizes(seqs, self.chunking_threshold)
        return chosen


def create_vllm_enhanced_compiler(
    enable_cuda_graphs: bool = True,
    enable_chunked_prefill: bool = True,
    chunking_threshold: int | None = None,
) -> Compiler:
    """Return a compiler. Usage: `create_vllm_enhanced_compiler().compile_model_aot(m, inputs)`."""
    return Compiler(enable_cuda_graphs, enable_chunked_prefill, chunking_threshold)


def capture_sizes(seqs: int, chunk: int | None) -> list[int]:
    """Return the step sizes to capture: those of decodes, and a chunk's own where it fits."""
    top = min(seqs, LARGEST_CAPTURE)
    sizes = {1, 2, 4, *range(8, top + 1, 8), top}
    if chunk and chunk <= LARGEST_CAPTURE:
        sizes |= {chunk, min(chunk + top, LARGEST_CAPTURE)}  # alone, and beside every decode
    return sorted(sizes)


def compilation_mode(mode: int | str) -> int:
    """Read a mode by its number (0 to 3) or name. Usage: `compilation_mode("vllm") == 3`."""
    number = MODES.get(mode.lower().removesuffix("_compile")) if isinstance(mode, str) else mode
    if number is None or not 0 <= number <= 3:
        raise ValueError(f"{mode!r} is no compilation mode: 0 to 3, or one of {', '.join(MODES)}")
    return number


def model_name(model: Any) -> str:
    """Return what vLLM can load: a name or a path, or a Hugging Face module's own."""
    if isinstance(model, str | Path):
        return str(model)
    found = getattr(model, "name_or_path", None) or getattr(
        getattr(model, "config", None), "name_or_path", None
    )
    if not found:
        raise ValueError(
            "vLLM loads a model from its files: give its name, its path, or a module that has "
            "name_or_path"
        )
    return str(found)


def as_prompts(inputs: Any) -> Any:
    """Turn a tokenizer's batch into prompts; leave what vLLM takes as it is."""
    if not isinstance(inputs, Mapping) or "input_ids" not in inputs:
        return inputs
    rows = _lists(inputs["input_ids"])
    masks = _lists(inputs["attention_mask"]) if "attention_mask" in inputs else None
    if masks is None:
        return [{"prompt_token_ids": row} for row in rows]
    return [
        {"prompt_token_ids": [token for token, real in zip(row, mask, strict=True) if real]}
        for row, mask in zip(rows, masks, strict=True)
    ]


def _lists(table: Any) -> list[list[int]]:
    rows: list[Any] = table.tolist() if hasattr(table, "tolist") else list(table)
    return rows if rows and isinstance(rows[0], list) else [rows]
