"""What the pacer can move in a live scheduler: the third part of `compat`.

Invariant: as in `compat`, things are probed, not looked up by version. Without
the step's budget nobody can pace; every other lever that is missing only takes
away a power, which is named once.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from chunkwise.engine import compat
from chunkwise.engine.paced_queue import PacedQueue

CAP = "_reserve_prefill_lookahead"


@dataclass(frozen=True, slots=True)
class Levers:
    """Usage: `levers_of(scheduler).cap`; `missing` is for the log."""

    cap: Callable[[Any, int, int], int] | None
    """vLLM's own last word on a request's tokens: what `put_cap` puts ours in front of."""
    queue: PacedQueue | None  # order of those who wait
    free_blocks: Callable[[], int] | None
    cached: Callable[[Any], tuple[int, int]] | None
    """Of a waiting request: tokens in the prefix cache, and blocks of them that are in use."""
    held: Callable[[], int]  # requests in other queues, which vLLM serves before those that wait
    decode_tokens: int  # of the budget, for each decode
    block_size: int
    by_priority: bool  # vLLM heeds a request's priority
    running: Any  # the status of a request that runs
    ready: tuple[Any, ...]  # of one that waits for nothing but its turn
    missing: tuple[str, ...]


def levers_of(scheduler: Any) -> Levers | None:
    """Probe what can be moved; None if not even the budget can."""
    from vllm.v1.request import RequestStatus

    written = [
        vars(kind)["schedule"] for kind in type(scheduler).__mro__ if "schedule" in vars(kind)
    ]
    names = frozenset[str]().union(*map(compat.names_in, written))
    budget = getattr(scheduler, "max_num_scheduled_tokens", None)
    if type(budget) is not int or "max_num_scheduled_tokens" not in names:
        return None
    missing: list[str] = []

    def probed(what: str, make: Callable[[], Any]) -> Any:
        found = None
        with suppress(Exception):  # a name that moved: the lever is not there
            found = make()
        if found is None:
            missing.append(what)
        return found

    cap = probed("a cap on each request", lambda: getattr(scheduler, CAP) if CAP in names else None)
    queue = probed("the order of those who wait", lambda: _queue(scheduler))
    manager = getattr(scheduler, "kv_cache_manager", None)
    free = probed("room in the KV cache", lambda: _free_blocks(manager))
    cached = None
    if getattr(manager, "enable_caching", False):
        cached = probed("cached prefixes of those who wait", lambda: _cached(manager))
    drafts = getattr(scheduler, "num_spec_tokens", 0)
    return Levers(
        cap,
        queue,
        free,
        cached,
        _held(scheduler),
        1 + (drafts if type(drafts) is int else 0),
        int(getattr(scheduler, "block_size", 16)),
        getattr(scheduler.policy, "value", "") == "priority",
        RequestStatus.RUNNING,
        (RequestStatus.WAITING, RequestStatus.PREEMPTED),
        tuple(missing),
    )


def put_cap(scheduler: Any, ask: Callable[[Any, int, int], int]) -> None:
    """Let vLLM ask this about every request's tokens, until `take_cap_away`.

    It asks in every step, for everyone who runs: so ours stands there only in steps that need it.
    """
    setattr(scheduler, CAP, ask)


def take_cap_away(scheduler: Any) -> None:
    """Leave the last word to vLLM."""
    vars(scheduler).pop(CAP, None)


def give_back_queue(scheduler: Any, queue: PacedQueue) -> None:
    """Put vLLM's own kind of queue in place of ours, with the same requests in its order."""
    from vllm.v1.core.sched.request_queue import create_request_queue

    own = create_request_queue(scheduler.policy)
    for request in queue:
        own.add_request(request)
    scheduler.waiting = own


def _queue(scheduler: Any) -> PacedQueue | None:
    from vllm.v1.core.sched.request_queue import (
        FCFSRequestQueue,
        PriorityRequestQueue,
        RequestQueue,
    )

    own = type(scheduler.waiting)
    methods = RequestQueue.__abstractmethods__
    known = all(callable(getattr(PacedQueue, name, None)) for name in methods)
    if own not in (FCFSRequestQueue, PriorityRequestQueue) or len(scheduler.waiting) or not known:
        return None
    return PacedQueue(own is PriorityRequestQueue)


def _free_blocks(manager: Any) -> Callable[[], int]:
    free: Callable[[], int] = manager.block_pool.get_num_free_blocks
    if free() < 0:
        raise ValueError("no such number")
    return free


def _cached(manager: Any) -> Callable[[Any], tuple[int, int]]:
    find = manager.coordinator.find_longest_cache_hit

    def cached(request: Any) -> tuple[int, int]:
        if getattr(request, "skip_reading_prefix_cache", False):
            return 0, 0
        blocks, tokens, *_ = find(request.block_hashes, request.num_tokens - 1)
        return int(tokens), sum(block.ref_cnt > 0 for block in blocks[0])

    return cached


def _held(scheduler: Any) -> Callable[[], int]:
    if hasattr(scheduler, "kv_holding_waiting"):
        return lambda: len(scheduler.kv_holding_waiting)
    return lambda: 0
