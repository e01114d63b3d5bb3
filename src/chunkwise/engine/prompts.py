"""The prompts of a live engine as jobs: who has begun, who waits, what they still need.

Invariant: a job says nothing that vLLM's request does not say now: how much is
computed is read anew each step, a job whose request is gone or no longer waits
is forgotten when it is met. Looking at the cached prefix of those who wait costs
at most a few lookups a step, and where the KV cache has no room for any of them
they are not looked at until it has, somebody comes, or some steps have passed.
"""

from collections.abc import Mapping
from math import inf
from typing import Any

from chunkwise.cost.live import LiveCost
from chunkwise.engine.compat_levers import Levers
from chunkwise.engine.promises import Promises
from chunkwise.engine.watcher import Tracked
from chunkwise.pacing import targets
from chunkwise.pacing.job import Job
from chunkwise.pacing.window import Window

STALE = 20  # steps after which a cached prefix is looked up again
MOST_LOOKUPS = 4  # a step
MOST_BLOCKED = 4  # requests that wait for something else, shown to vLLM in a step


class Prompts:
    """Usage: each step `prompts.begun(now)`, and `waiting(now, budget)` if one may begin."""

    def __init__(
        self,
        scheduler: Any,
        levers: Levers,
        promises: Promises,
        cost: LiveCost,
        prefilling: Mapping[str, Tracked],
    ):
        self._requests: Mapping[str, Any] = scheduler.requests
        self._levers = levers
        self._promises = promises
        self._cost = cost
        self._prefilling = prefilling
        self._by_priority = levers.by_priority
        self._jobs: dict[str, Job] = {}
        self._itls: dict[str, float] = {}
        self._looked: dict[str, int] = {}  # step of the last lookup
        self._window = Window()
        self._number = 0
        self._step = 0
        self._needed = 0  # blocks, for any of those who wait to begin, as long as that holds:
        self._look_again = 0  # ... until this step

    def __bool__(self) -> bool:
        return bool(self._jobs)

    @property
    def relegated(self) -> int:
        """How many were set aside for good."""
        return self._window.relegated

    def added(self, request: Any, now: float) -> None:
        """A request came in."""
        promise = self._promises.of(request)
        if self._promises.one_itl is None:
            self._itls[request.request_id] = promise.itl
        due = now + targets.first_token(promise.ttft, self._cost, request.num_tokens)
        self._window.add(self._made(request, due, now))

    def itl(self, name: str) -> float:
        """Return the inter-token target of a request."""
        return self._itls.get(name, inf)

    def begun(self, now: float) -> list[Job]:
        """Return those who have begun."""
        self._step += 1
        begun: list[Job] = []
        if self._prefilling:
            size = self._levers.block_size
            for name, tracked in self._prefilling.items():
                request = tracked.request
                if request.status != self._levers.running:
                    continue  # ended since the last step
                job = self._jobs.get(name)
                if job is None:
                    job = self._made(request, inf, now)
                job.started = True
                job.context = request.num_computed_tokens
                job.left = request.num_tokens - job.context
                job.blocks = -(-request.num_tokens // size) + (-job.context // size)
                begun.append(job)
        return begun

    def none_fits(self, room: int) -> bool:
        """Tell whether so many blocks are known to be too few for any of those who wait."""
        return room <= self._needed and self._step < self._look_again

    def none_began(self, waiting: list[Job], room: int) -> None:
        """Note that none of these was chosen; if for lack of room, they need not be asked again."""
        least = min([job.blocks for job in waiting])
        if least >= room:
            self._needed, self._look_again = least, self._step + STALE

    def waiting(self, now: float, budget: int) -> tuple[list[Job], list[Job]]:
        """Return the head of those who wait for nothing but their turn, and of the others."""
        waiting, blocked = [], []
        lookups = MOST_LOOKUPS if self._levers.cached is not None else 0
        for job in self._window.head(now, budget):
            asked: Any = job.request
            if asked.status not in self._levers.ready:
                blocked.append(job)
                continue
            if lookups and self._step - self._looked.get(job.name, -STALE) >= STALE:
                lookups -= 1
                self._look_up(job)
            waiting.append(job)
        return waiting, blocked[:MOST_BLOCKED]

    def late(self, begun: list[Job]) -> list[Job]:
        """Return those who have no deadline to make: who has begun, and the first who wait."""
        patient = [job for job in begun if job.patient or job.aside]
        return patient + self._window.heads()

    def first_in_line(self) -> tuple[str | None, int]:
        """Return who has been there longest of those who can run, and what is left of it."""
        found: Job | None = None
        queue = self._levers.queue
        if queue is not None and (request := queue.first()) is not None:
            found = self._jobs.get(request.request_id)
            if found is not None and request.status not in self._levers.ready:
                found = None
        for name in self._prefilling:
            job = self._jobs.get(name)
            if job is not None and (found is None or job.number < found.number):
                found = job
        return (None, 0) if found is None else (found.name, found.left)

    def scheduled(self, output: Any, now: float) -> None:
        """vLLM has decided a step."""
        for name in output.finished_req_ids:
            self._forget(name)
            self._itls.pop(name, None)
        for name in getattr(output, "preempted_req_ids", None) or ():
            self._put_back(name, now)
        few, many = self._jobs, output.num_scheduled_tokens
        if len(few) > len(many):
            few, many = many, few
        for name in [name for name in few if name in many]:
            job = self._jobs[name]
            request: Any = job.request
            job.started, job.moved = True, now
            if request.num_computed_tokens >= request.num_tokens:
                self._forget(name)

    def _made(self, request: Any, due: float, now: float) -> Job:
        self._number += 1
        self._look_again = 0
        self._forget(request.request_id)
        job = self._jobs[request.request_id] = Job(
            request.request_id,
            self._number,
            request.num_tokens - request.num_computed_tokens,
            request.num_computed_tokens,
            due,
            now,
            -(-request.num_tokens // self._levers.block_size),
            request.priority if self._by_priority else 0,
            request=request,
        )
        return job

    def _put_back(self, name: str, now: float) -> None:
        """vLLM took a request's blocks away: it has to begin anew."""
        job = self._jobs.get(name)
        self._forget(name)
        request = self._requests.get(name)
        if request is None or request.is_finished():
            return
        again = self._made(request, now if job is None else job.deadline, now)
        again.resumed = request.num_output_tokens > 0
        if job is not None:
            again.number, again.added = job.number, job.added
        self._window.add(again)

    def _forget(self, name: str) -> None:
        job = self._jobs.pop(name, None)
        if job is not None:
            job.gone = True
            self._looked.pop(name, None)

    def _look_up(self, job: Job) -> None:
        assert self._levers.cached is not None
        request: Any = job.request
        self._looked[job.name] = self._step
        tokens, in_use = self._levers.cached(request)
        job.context = tokens
        job.left = request.num_tokens - tokens
        job.blocks = -(-request.num_tokens // self._levers.block_size) - in_use
