"""Four prompts, one after another, through `vllm.LLM` (runs inside `child.py`)."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from chunkwise.engine import compat
from chunkwise.engine.offline import RecordedLLM
from chunkwise.lab.engines import demo_model, demo_options, model_context, progress
from chunkwise.lab.prompts import PASSAGE
from chunkwise.settings import Settings

QUESTION = "In one short sentence, what does this text say?"
GREETING = "Hello, who are you?"
# Passages of text before the question: from a few tokens to about a thousand.
PASSAGES = (0, 1, 4, 11)
LONGEST = 2048
OUTPUT_TOKENS = 24


def run(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Answer each prompt and report how many steps its prefill took."""
    yield progress("Loading the model", 0.02)
    model = demo_model(spec["model"])
    yield progress("Loading vLLM", 0.1)
    stock = next(item for item in compat.defaults() if item.usage == "llm")
    budget = int(spec["budget"])
    wanted = Settings(
        max_num_batched_tokens=budget,
        max_num_seqs=min(budget, stock.seqs),
        max_model_len=min(LONGEST, model_context(model)),
    )
    settings, options = demo_options(model, wanted)
    yield progress("Starting the engine", 0.4)
    llm = RecordedLLM(model, settings, **options)
    yield progress("Warming up", 0.7)
    llm.chat("Warm up.", OUTPUT_TOKENS)
    yield {
        "event": "engine",
        "resolved": asdict(llm.resolved),
        "default_budget": stock.budget,
    }
    for number, passages in enumerate(PASSAGES):
        yield progress(f"Prompt {number + 1} of {len(PASSAGES)}", 0.8 + 0.05 * number)
        # The number keeps prompts from sharing a prefix, which the cache would skip.
        text = f"Case {number}. {PASSAGE * passages}{QUESTION if passages else GREETING}"
        yield {"event": "prompt", "number": number, **asdict(llm.chat(text, OUTPUT_TOKENS))}
