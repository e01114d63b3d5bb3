"""A scheduler that is vLLM's own and writes down what it scheduled, and how long it took.

`RecordingScheduler` is named to vLLM by its dotted path. It adds nothing but a
list of steps and their times: every decision is the base class's. Invariant:
`schedule()` is called once through `super()` and its output is returned untouched.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chunkwise.engine import compat
from chunkwise.engine.clock import StepClock, now

PATH = "chunkwise.engine.recorder.RecordingScheduler"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Prefill tokens of one request in one step, and the context before them."""

    request_id: str
    tokens: int
    context: int
    prompt: int  # tokens of the whole prompt

    @property
    def last(self) -> bool:
        """Tell whether the prompt ends with it."""
        return self.context + self.tokens >= self.prompt


@dataclass(frozen=True, slots=True)
class Step:
    """What one engine step carried."""

    chunks: tuple[Chunk, ...]
    decodes: int
    decode_context: int = 0  # sum over the decodes, before this step


def RecordingScheduler(*args: Any, vllm_config: Any, **kwargs: Any) -> Any:  # noqa: N802
    """Build the recorder over whichever class vLLM would choose for this configuration."""
    base: Any = compat.stock_scheduler(vllm_config)

    class Recorder(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.steps: list[Step] = []
            # Of the steps, in their order; the last may be missing. On a shared machine the
            # processor time of this process is disturbed less, where the model runs in it.
            self.seconds: list[float] = []
            self.cpu_seconds: list[float] = []
            self._clock = StepClock()

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            output = super().schedule(*args, **kwargs)
            if output.num_scheduled_tokens:
                self.steps.append(read_step(output.num_scheduled_tokens, self.requests))
                self._clock.scheduled(output, time.process_time())
            return output

        def update_from_output(self, output: Any, *args: Any, **kwargs: Any) -> Any:
            if output.num_scheduled_tokens and (ended := self._clock.ended(output, now())):
                seconds, cpu = ended
                self.seconds.append(seconds)
                self.cpu_seconds.append(time.process_time() - cpu)
            return super().update_from_output(output, *args, **kwargs)

    return Recorder(*args, vllm_config=vllm_config, **kwargs)


def prefill_chunks(steps: Sequence[Step], request_id: str) -> list[int]:
    """Return the sizes of the chunks that one prompt was cut into."""
    return [
        chunk.tokens
        for step in steps
        for chunk in step.chunks
        if compat.is_request(chunk.request_id, request_id)
    ]


def read_step(scheduled: dict[str, int], requests: dict[str, Any]) -> Step:
    """Say what a step carries, from what `schedule()` returned and the requests it advanced."""
    chunks = []
    decodes = decode_context = 0
    for request_id, tokens in scheduled.items():
        request = requests[request_id]
        # schedule() has already advanced the request past this step's tokens.
        context = request.num_computed_tokens - tokens
        if context < request.num_prompt_tokens:
            chunks.append(Chunk(request_id, tokens, context, request.num_prompt_tokens))
        else:
            decodes += 1
            decode_context += context
    return Step(tuple(chunks), decodes, decode_context)
