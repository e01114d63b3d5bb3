"""Four prompts, one after another, through `vllm.LLM` (runs inside `child.py`)."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from chunkwise.engine import compat, recorder
from chunkwise.engine.room import refuse_what_cannot_fit
from chunkwise.lab.engines import demo_model, demo_options, model_context, progress
from chunkwise.lab.prompts import PASSAGE
from chunkwise.settings import Settings

QUESTION = "In one short sentence, what does this text say?"
GREETING = "Hello, who are you?"
# Passages of text before the question: from a few tokens to about a thousand.
PASSAGES = (0, 1, 4, 11)
OUTPUT_TOKENS = 24


def run(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Answer each prompt and report how many steps its prefill took."""
    yield progress("Loading the model", 0.02)
    model = demo_model(spec["model"])
    yield progress("Loading vLLM", 0.1)
    compat.load_vllm()
    from vllm import LLM, SamplingParams

    budget = int(spec["budget"])
    stock = next(item for item in compat.defaults() if item.usage == "llm")
    wanted = Settings(
        max_num_batched_tokens=budget,
        max_num_seqs=min(budget, stock.seqs),
        max_model_len=min(2048, model_context(model)),
    )
    settings, options = demo_options(model, wanted)
    refuse_what_cannot_fit(
        compat.checked_config(compat.engine_args(model, settings, **options), "llm")
    )
    yield progress("Starting the engine", 0.4)
    llm = LLM(model, scheduler_cls=recorder.PATH, **settings.to_llm(), **options)
    resolved = compat.describe(llm.llm_engine.vllm_config)
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    params = SamplingParams(temperature=0, max_tokens=OUTPUT_TOKENS)
    yield progress("Warming up", 0.7)
    llm.generate("Warm up.", params, use_tqdm=False)
    yield {"event": "engine", "resolved": asdict(resolved), "default_budget": stock.budget}
    for number, passages in enumerate(PASSAGES):
        # The number keeps prompts from sharing a prefix, which the cache would skip.
        text = f"Case {number}. {PASSAGE * passages}{QUESTION if passages else GREETING}"
        yield progress(
            f"Prompt {number + 1} of {len(PASSAGES)}", 0.8 + 0.2 * number / len(PASSAGES)
        )
        before = len(scheduler.steps)
        start = time.monotonic()
        [output] = llm.chat([{"role": "user", "content": text}], params, use_tqdm=False)
        yield {
            "event": "prompt",
            "number": number,
            "prompt_tokens": len(output.prompt_token_ids),
            "chunks": [chunk.tokens for step in scheduler.steps[before:] for chunk in step.chunks],
            "seconds": time.monotonic() - start,
            "output_tokens": len(output.outputs[0].token_ids),
            "text": output.outputs[0].text,
        }
