"""`vllm.LLM` with a recorder inside: answers, and how the engine got there.

Only for a process of our own (`chunkwise.lab.child`), like the stepper.
"""

import time
from dataclasses import dataclass
from typing import Any

from chunkwise.engine import compat, recorder
from chunkwise.engine.room import refuse_what_cannot_fit
from chunkwise.settings import Settings


@dataclass(frozen=True, slots=True)
class Answer:
    """One chat turn: what was said, and the chunks its prompt was cut into."""

    prompt_tokens: int
    chunks: tuple[int, ...]
    seconds: float
    output_tokens: int
    text: str


class RecordedLLM:
    """Usage: `llm = RecordedLLM(model, Settings()); llm.chat("Hello", 16).text`."""

    def __init__(self, model: str, settings: Settings, **more: Any):
        args = compat.engine_args(model, settings, **more)
        refuse_what_cannot_fit(compat.checked_config(args, "llm"))
        from vllm import LLM

        self._llm = LLM(model, scheduler_cls=recorder.PATH, **settings.to_llm(), **more)
        self._scheduler = self._llm.llm_engine.engine_core.engine_core.scheduler
        self.resolved = compat.describe(self._llm.llm_engine.vllm_config)

    def chat(self, text: str, max_tokens: int) -> Answer:
        """Answer one message, greedily."""
        from vllm import SamplingParams

        before = len(self._scheduler.steps)
        params = SamplingParams(temperature=0, max_tokens=max_tokens)
        start = time.monotonic()
        [output] = self._llm.chat([{"role": "user", "content": text}], params, use_tqdm=False)
        seconds = time.monotonic() - start
        steps = self._scheduler.steps[before:]
        return Answer(
            prompt_tokens=len(output.prompt_token_ids),
            chunks=tuple(chunk.tokens for step in steps for chunk in step.chunks),
            seconds=seconds,
            output_tokens=len(output.outputs[0].token_ids),
            text=output.outputs[0].text,
        )
