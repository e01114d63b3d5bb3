"""The scheduler of `chunkwise.LLM`: vLLM's own, counted, with short prompts kept whole.

Named to vLLM by its dotted path and built in the engine's own process, which
inherits its orders as an environment variable. Invariant: vLLM's `schedule()`
decides; counting that fails is switched off with a warning and the engine goes on.
"""

import json
import logging
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chunkwise.engine import compat
from chunkwise.engine.counters import Counters
from chunkwise.engine.pieces import Pieces
from chunkwise.engine.recorder import read_step

PATH = "chunkwise.engine.counting.CountingScheduler"
ORDERS = "CHUNKWISE_LLM_ORDERS"

log = logging.getLogger(__name__)


@contextmanager
def orders(counters: Path, pieces: Pieces | None) -> Iterator[None]:
    """Hand orders to the engine that is built inside the `with` block."""
    size, everyone = (pieces.size, pieces.all_prompts) if pieces else (0, False)
    before = os.environ.get(ORDERS)
    os.environ[ORDERS] = json.dumps({"counters": str(counters), "size": size, "all": everyone})
    try:
        yield
    finally:
        if before is None:
            del os.environ[ORDERS]
        else:
            os.environ[ORDERS] = before


def CountingScheduler(*args: Any, vllm_config: Any, **kwargs: Any) -> Any:  # noqa: N802
    """Build over whichever class vLLM would choose for this configuration."""
    base: Any = compat.stock_scheduler(vllm_config)
    given = json.loads(os.environ.get(ORDERS, "{}"))
    config = vllm_config.scheduler_config
    pieces = Pieces(given.get("size") or 1, bool(given.get("all")))
    budget = config.max_num_scheduled_tokens or config.max_num_batched_tokens
    obey = bool(given.get("size")) and pieces.fits(
        budget, config.max_num_seqs, config.long_prefill_token_threshold
    )

    class Counting(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._count: Counters | None = None
            # One entry a step in flight: when it was scheduled, if it is to be timed.
            self._in_flight: deque[float | None] = deque()
            self._updated = 0.0
            self._obey = obey
            self._held = False  # whether this step was denied to a prompt
            with _fail_open(self, "count its steps"):
                self._count = Counters(Path(given["counters"]))

        def _reserve_prefill_lookahead(self, request: Any, computed: int, new: int) -> int:
            allowed: int = super()._reserve_prefill_lookahead(request, computed, new)
            if not self._obey or not allowed or getattr(request, "has_encoder_inputs", False):
                return allowed
            taken = pieces.allow(request.num_prompt_tokens, computed, allowed)
            self._held = self._held or not taken
            return taken

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            self._held = False
            output = super().schedule(*args, **kwargs)
            if self._held and not output.num_scheduled_tokens:
                self._obey = False  # something else limits the prompt: never wait for good
            if self._count is not None and output.num_scheduled_tokens:
                with _fail_open(self, "count its steps"):
                    step = read_step(output.num_scheduled_tokens, self.requests)
                    preempted = output.preempted_req_ids or ()
                    timed = self._count.step(step, preempted, self.kv_cache_manager.usage)
                    self._in_flight.append(time.monotonic() if timed else None)
            return output

        def update_from_output(self, output: Any, *args: Any, **kwargs: Any) -> Any:
            if self._count is not None and output.num_scheduled_tokens and self._in_flight:
                with _fail_open(self, "time its steps"):
                    now = time.monotonic()
                    start = self._in_flight.popleft()
                    if start is not None:
                        # With two batches in flight, a step begins when the one before it ends.
                        self._count.chunk_time(now - max(start, self._updated))
                    self._updated = now
            return super().update_from_output(output, *args, **kwargs)

    return Counting(*args, vllm_config=vllm_config, **kwargs)


@contextmanager
def _fail_open(scheduler: Any, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever it is, people want their answers
        if scheduler._count is not None:
            scheduler._count.void()
            scheduler._count = None
        log.warning("Chunkwise cannot %s (%r): chunking_stats() is not available.", what, error)
