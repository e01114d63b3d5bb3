"""The paced scheduler on a device of ours, and a soak: random everything, nobody lost."""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine import no_model

from chunkwise.engine.orders import CLASS_ARGUMENT
from chunkwise.engine.scheduler import PacedScheduler

ITL = 0.05
Build = Callable[..., Any]
CLASSES = "chat:ttft=500ms:itl=30ms,batch:ttft=none:itl=none"


class Device:
    """Takes a known time for each step, one after another, and says how long decodes waited."""

    def __init__(self, seed: int = 0, noise: float = 0.03):
        self.now = 1000.0
        self.steps: list[tuple[float, int, int]] = []  # seconds, decodes, prefill tokens
        self.prefilled: dict[str, int] = {}
        self._rng = random.Random(seed)
        self._noise = noise

    def seconds(self, scheduler: Any, output: Any) -> float:
        prefill = decodes = 0
        work = 0.0
        for name, tokens in output.num_scheduled_tokens.items():
            request = scheduler.requests[name]
            before = request.num_computed_tokens - tokens
            if before < request.num_prompt_tokens:
                prefill += tokens
                work += tokens * (before + tokens / 2)
                self.prefilled[name] = self.prefilled.get(name, 0) + tokens
            else:
                decodes += 1
        if not prefill and not decodes:
            return 0.0001
        price = 0.006 + 4e-5 * decodes + (0.002 if prefill else 0) + 2.5e-5 * prefill + 4e-9 * work
        price *= max(0.5, self._rng.gauss(1, self._noise))
        self.steps.append((price, decodes, prefill))
        return price

    def step(self, scheduler: Any) -> Any:
        """One whole step, sync."""
        output = scheduler.schedule()
        self.now += self.seconds(scheduler, output)
        scheduler.update_from_output(output, no_model.result(scheduler, output))
        return output


def builder(model: Path, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Yield what builds paced schedulers; they end with it."""
    patch.setenv("CHUNKWISE", "on")
    patch.setenv("CHUNKWISE_ITL", "50ms")
    patch.setenv("CHUNKWISE_TTFT", "1s")
    patch.setenv("CHUNKWISE_DIR", str(folder / "kept"))
    patch.setenv("XDG_RUNTIME_DIR", str(folder))
    built: list[Any] = []

    def made(blocks: int = 20_000, cls: Any = PacedScheduler, **scheduler: Any) -> Any:
        given = {"max_num_batched_tokens": 4096, **scheduler}
        built.append(no_model.scheduler(cls, no_model.configuration(model, **given), blocks))
        return built[-1]

    yield made
    for one in built:
        one.shutdown()


def soak(
    build: Build, device: Device, patch: pytest.MonkeyPatch, requests: int, seed: int
) -> Counter[str]:
    """Random aborts, classes, lengths, prefixes, pools: everyone gets what it asked for."""
    from vllm.v1.request import RequestStatus

    patch.setenv("CHUNKWISE_CLASSES", CLASSES)
    rng = random.Random(seed)
    depth = rng.choice([1, 1, 2])  # batches in flight; an asynchronous engine keeps two
    setting = {
        "blocks": rng.choice([120, 300, 20_000] if depth == 1 else [20_000]),
        "max_num_seqs": rng.choice([4, 32]),
        "max_num_batched_tokens": rng.choice([64, 512, 4096]),
        "long_prefill_token_threshold": rng.choice([0, 0, 48]),
    }
    policy = rng.choice(["fcfs", "priority"])
    paced = build(**setting, policy=policy, async_scheduling=depth == 2)
    feed = no_model.Feed()
    shared = list(range(900_000, 900_600))
    asked: dict[str, int] = {}
    got: Counter[str] = Counter()
    aborted: set[str] = set()
    flight: deque[tuple[Any, float]] = deque()
    seen = Counter(**setting, depth=depth, by_priority=policy == "priority")
    number = idle = 0
    free_at = device.now
    while number < requests or paced.has_requests() or flight:
        if number < requests and rng.random() < 0.25:
            name = f"r{number}"
            ids = [
                *shared[: rng.choice([0, 0, 160, 600])],
                *range(number * 3000, number * 3000 + rng.randint(1, 900)),
            ]
            extra = {CLASS_ARGUMENT: rng.choice(["chat", "batch", "nobody"])}
            asked[name] = rng.randint(1, 60)
            paced.add_request(
                feed(name, ids, asked[name], extra_args=extra, priority=rng.randint(0, 2))
            )
            number += 1
        if rng.random() < 0.02 and paced.requests:
            name = rng.choice(list(paced.requests))
            aborted.add(name)
            paced.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        output = paced.schedule()
        some = bool(output.num_scheduled_tokens)
        seen["steps"] += some
        seen["preempted"] += len(output.preempted_req_ids or ())
        idle = 0 if some or flight or not paced.has_requests() else idle + 1
        assert idle < 5, "nothing runs"
        if some or not flight:
            free_at = max(device.now, free_at) + device.seconds(paced, output)
            flight.append((output, free_at))
        if some and len(flight) < depth:
            continue
        output, device.now = flight.popleft()
        answer = no_model.result if depth == 1 else no_model.async_result
        answers = paced.update_from_output(output, answer(paced, output))
        for one in (item for answer in answers.values() for item in answer.outputs):
            got[one.request_id] += len(one.new_token_ids)
    assert paced._pacer is not None, "it gave up"
    for name, tokens in asked.items():
        assert name in aborted or got[name] == tokens, name
    assert not paced._pacer._prompts._jobs
    counts = paced._pacer.counts
    seen.update(aborted=len(aborted), turns=counts.turns, set_aside=counts.relegations)
    seen.update(decode_only=counts.decode_only, fallbacks=counts.fallbacks)
    return seen
