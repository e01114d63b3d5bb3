"""Many steps of pure decoding at once, leaving vLLM's state as if each had been taken.

While nobody waits, arrives, prefills or ends and the KV pool has room, vLLM's
step does one thing: every running request gets a token, and now and then a
block. `Glide` does that for many steps: tokens and counters by addition, blocks
by vLLM's own `allocate_slots` in the very order in which steps would ask.
Invariant: afterwards every request, block and queue is as after that many calls
of `schedule` and `update_from_output`; a test compares the two byte for byte.
Only vLLM's own two schedulers glide; any other class is stepped.
"""

from collections.abc import Sequence
from typing import Any

FEWEST = 4  # steps; below, looking costs more than it saves


class Glide:
    """Usage: `steps = glide.most(decodes)`, then `glide.go(steps)`."""

    def __init__(self, scheduler: Any, block_size: int):
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler

        self._scheduler = scheduler
        self._size = block_size
        self._pool = scheduler.kv_cache_manager.block_pool
        self._able = type(scheduler) in (Scheduler, AsyncScheduler) and not any(
            getattr(scheduler, name, None)
            for name in ("connector", "num_lookahead_tokens", "num_spec_tokens", "use_pp")
        )

    def most(self, decodes: int) -> int:
        """Return how many steps can be taken at once, if the last one carried `decodes`; or 0.

        That many leave every request with a token to go, and the pool with room.
        """
        running: Sequence[Any] = self._scheduler.running
        if not self._able or len(running) != decodes:
            return 0
        steps = min(r.max_tokens - len(r._output_token_ids) for r in running) - 1
        free = self._pool.get_num_free_blocks() - len(running)
        steps = min(steps, free * self._size // len(running))
        return steps if steps >= FEWEST else 0

    def contexts(self) -> int:
        """Return the sum of what the next step's decodes read."""
        return sum(r.num_computed_tokens for r in self._scheduler.running)

    def names(self) -> list[int]:
        """Return the running requests, in the order in which their tokens come."""
        return [int(r.request_id) for r in self._scheduler.running]

    def kv_use(self, steps: int) -> list[float]:
        """Return the share of the pool in use after each of the next steps was scheduled."""
        asked = [0] * steps
        for request in self._scheduler.running:
            for step in range(-request.num_computed_tokens % self._size, steps, self._size):
                asked[step] += 1
        free, total = self._pool.get_num_free_blocks(), self._pool.num_gpu_blocks - 1
        shares = []
        for count in asked:
            free -= count
            shares.append(1.0 - free / total)
        return shares

    def go(self, steps: int) -> None:
        """Take the steps."""
        scheduler, size = self._scheduler, self._size
        running = scheduler.running
        manager = scheduler.kv_cache_manager
        starts = [r.num_computed_tokens for r in running]
        asks = [
            (step, index)
            for index, start in enumerate(starts)
            for step in range(-start % size, steps, size)
        ]
        asks.sort()
        for step, index in asks:
            request = running[index]
            _advance(request, starts[index] + step)
            if manager.allocate_slots(request, 1) is None:
                raise AssertionError("the KV pool ran out while gliding")
        for request, start in zip(running, starts, strict=True):
            _advance(request, start + steps)
            request.next_decode_eligible_step += steps
            known = request.num_computed_tokens - request.num_output_placeholders
            if manager.enable_caching and known % size == 0:
                manager.cache_blocks(request, known)
        scheduler.current_step += steps


def _advance(request: Any, computed: int) -> None:
    more = computed - request.num_computed_tokens
    if more:
        request.num_computed_tokens = computed
        request.append_output_token_ids([1] * more)
