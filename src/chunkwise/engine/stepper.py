"""A real vLLM engine in this process, advanced one step at a time.

Same scheduler, KV manager, model runner and weights as a server's; what is left
out is the HTTP front end and the process between it and the engine. Time is
read when a step's tokens arrive, which is when a client could first see them.
Only for a process of our own (`chunkwise.lab.child`), because vLLM keeps state
per process and prints to stdout.
"""

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chunkwise.engine import compat, recorder
from chunkwise.engine.room import refuse_what_cannot_fit
from chunkwise.settings import Settings


@dataclass(frozen=True, slots=True)
class Token:
    """One token that a step produced for a request, and when."""

    request_id: str
    seconds: float
    finished: bool


class Stepper:
    """Usage: `engine = Stepper(model, Settings()); engine.add("a", ids, 8); engine.step()`."""

    def __init__(self, model: str, settings: Settings, usage: compat.Usage = "server", **more: Any):
        compat.load_vllm()
        from vllm.v1.engine.llm_engine import LLMEngine

        args = compat.engine_args(model, settings, scheduler_cls=recorder.PATH, **more)
        config = compat.checked_config(args, usage)
        refuse_what_cannot_fit(config)
        self.resolved = compat.describe(config)
        self._engine = LLMEngine.from_vllm_config(
            config, usage_context=compat.usage_context(usage), disable_log_stats=True
        )
        self._scheduler = self._engine.engine_core.engine_core.scheduler
        self._sent: dict[str, int] = {}

    def add(self, request_id: str, token_ids: Sequence[int], max_tokens: int) -> float:
        """Queue a prompt; return when. It produces exactly `max_tokens` tokens."""
        from vllm import SamplingParams

        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        self._sent[request_id] = 0
        arrival = time.monotonic()
        self._engine.add_request(request_id, {"prompt_token_ids": list(token_ids)}, params)
        return arrival

    def abort(self, request_ids: Sequence[str]) -> None:
        """End requests, finished or not."""
        self._engine.abort_request(list(request_ids))
        for request_id in request_ids:
            self._sent.pop(request_id, None)

    def step(self) -> list[Token]:
        """Let the engine do one step and return the tokens that came out of it."""
        outputs = self._engine.step()
        now = time.monotonic()
        tokens = []
        for output in outputs:
            produced = len(output.outputs[0].token_ids)
            new = produced - self._sent[output.request_id]
            self._sent[output.request_id] = produced
            tokens += [Token(output.request_id, now, output.finished)] * new
        return tokens

    @property
    def busy(self) -> bool:
        """Tell whether any request is unfinished."""
        return bool(self._engine.has_unfinished_requests())

    def prefill_chunks(self, request_id: str) -> list[int]:
        """Return the sizes of the chunks that the engine cut this prompt into."""
        return recorder.prefill_chunks(self._scheduler.steps, request_id)

    @property
    def steps(self) -> list[recorder.Step]:
        """All steps so far that carried at least one token."""
        return list(self._scheduler.steps)

    @property
    def timed_steps(self) -> list[tuple[recorder.Step, float, float]]:
        """All steps so far whose end was seen: from schedule to output, on the clock and in CPU."""
        seen = self._scheduler
        return list(zip(seen.steps, seen.seconds, seen.cpu_seconds, strict=False))

    def limit_steps(self, budget: int, longest_chunk: int = 0) -> None:
        """Let the next steps carry at most so many tokens, and so many of one prompt (0: any)."""
        compat.limit_steps(self._scheduler, budget, longest_chunk)

    def close(self) -> None:
        """Free the model and its KV cache."""
        self._engine.engine_core.shutdown()
        del self._engine, self._scheduler
        gc.collect()
