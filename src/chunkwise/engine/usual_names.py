"""The names that code about vLLM and chunking tends to use, each over the real thing.

For code that exists already; new code uses `chunkwise.LLM`, `Settings` and the
compiler. There is no "memory saved" figure: docs/memory.md says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chunkwise.engine.compile import CompiledModel, Compiler, create_vllm_enhanced_compiler
from chunkwise.engine.decide import judge
from chunkwise.engine.lengths import prompt_lengths
from chunkwise.settings import Settings
from chunkwise.verdict import SELECTIVE_BELOW, Verdict

EnhancedAOTWithVLLMChunking = Compiler
VLLMChunkedModelWrapper = CompiledModel
create_enhanced_compiler_with_chunking = create_vllm_enhanced_compiler


@dataclass(frozen=True, slots=True)
class VLLMChunkedPrefillConfig:
    """Usage: `VLLMChunkedPrefillConfig(chunking_threshold=2048).to_settings()`."""

    enable_chunked_prefill: bool = True
    chunking_threshold: int = SELECTIVE_BELOW
    max_num_batched_tokens: int | None = None

    def to_settings(self) -> Settings:
        """Return the same as vLLM's arguments."""
        return Settings(
            enable_chunked_prefill=None if self.enable_chunked_prefill else False,
            long_prefill_token_threshold=self.chunking_threshold,
            max_num_batched_tokens=self.max_num_batched_tokens,
        )


class VLLMChunkedPrefillOptimizer:
    """Usage: `VLLMChunkedPrefillOptimizer().should_chunk(8000)`."""

    def __init__(self, config: VLLMChunkedPrefillConfig | None = None):
        self.config = config or VLLMChunkedPrefillConfig()

    def should_chunk(self, tokens: int) -> bool:
        """Tell whether a prompt of this length is cut."""
        return self.config.enable_chunked_prefill and tokens > self.config.chunking_threshold

    def get_optimal_chunk_size(self, tokens: int) -> int:
        """Return the most tokens that such a prompt takes of a step."""
        return self.config.chunking_threshold if self.should_chunk(tokens) else tokens

    def analyze_dataset_for_optimal_threshold(
        self, prompts: Sequence[Any], tokenizer: Any = None
    ) -> Verdict:
        """Judge lengths (numbers), or prompts with their tokenizer, by `verdict.py`."""
        if all(isinstance(item, int) for item in prompts):
            return judge(prompts)
        found = prompt_lengths(prompts, lambda: tokenizer)
        if not found:
            raise ValueError("these prompts have no length that is known beforehand")
        return judge(found)
