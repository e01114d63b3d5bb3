"""Turn what passes through a scheduler into records, at a cost that nobody notices.

Each record is a tuple of numbers handed to a ring; writing and counting happen
in another thread. Invariant: a step costs one pass over the running requests
and one over those in prefill, no more; the waiting ones are never looked at.
Nothing here changes the scheduler, its requests or its outputs.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

from chunkwise.engine import clock
from chunkwise.engine.compat_scheduler import Sight
from chunkwise.engine.promises import class_of
from chunkwise.observed import OTHER, REASONS, Chunk, Record, Request, Step


class Tracked:
    """A request that is not finished, and what was seen of it."""

    __slots__ = (
        "cached",
        "chunks",
        "first_step",
        "first_token",
        "number",
        "preemptions",
        "request",
        "scheduled",
    )

    def __init__(self, number: int, request: Any):
        self.number = number
        self.request = request
        self.chunks = self.preemptions = self.cached = 0
        self.scheduled: float | None = None
        self.first_token: float | None = None
        self.first_step: int | None = None


class Watcher:
    """Usage: call `added`, `scheduled` and `updated` after vLLM's own; `put` gets the records."""

    def __init__(self, sight: Sight, put: Callable[[Any], None], classes: Iterable[str] = ()):
        self.started = clock.now()
        self.wall_started = time.time()  # the same moment, in seconds since 1970
        self._sight = sight
        self._put = put
        self._classes = frozenset(classes)
        self._clock = clock.StepClock()
        self._live: dict[str, Tracked] = {}
        self.prefilling: dict[str, Tracked] = {}
        self._victims: list[str] = []  # preempted since the last step that was noted
        self._requests = self._steps = self._last_ended = 0

    def added(self, request: Any) -> None:
        """A request came in."""
        if request.request_id not in self._live:  # else the next input of a session
            self._live[request.request_id] = Tracked(self._requests, request)
            self._requests += 1

    def scheduled(self, scheduler: Any, output: Any) -> None:
        """vLLM has decided a step: say what is in it."""
        if output.finished_req_ids:
            self._finish(output.finished_req_ids, clock.now())
        victims = self._sight.preempted(output)
        if victims:
            self._preempt(victims)
        tokens = output.num_scheduled_tokens
        if not tokens:
            return
        prefilling = self.prefilling
        if output.scheduled_new_reqs:
            for new in output.scheduled_new_reqs:
                self._start(new.req_id)
        resumed = self._sight.resumed(output)
        if resumed:
            for name in resumed:
                self._start(name)
        running = scheduler.running
        context = sum([request.num_computed_tokens for request in running])
        decodes = len(tokens)
        decode_tokens = output.total_num_scheduled_tokens
        others = len(running)
        chunks: list[Chunk] = []
        ended: list[Tracked] = []
        if prefilling:
            others -= len(prefilling)
            for name, tracked in list(prefilling.items()):
                request = tracked.request
                computed = request.num_computed_tokens
                context -= computed
                new = tokens.get(name)
                if new is None:
                    continue
                decodes -= 1
                decode_tokens -= new
                chunks.append(Chunk(tracked.number, new, computed - new))
                if tracked.scheduled is None:
                    tracked.scheduled = clock.now()
                    tracked.cached = computed - new
                tracked.chunks += 1
                if computed >= request.num_tokens:
                    ended.append(tracked)
                    del prefilling[name]
        held: list[str] = []
        context -= decode_tokens
        if decodes != others:
            # Some decode got nothing, so that its context is not part of the step.
            idle = [
                request
                for request in running
                if request.request_id not in tokens and request.request_id not in prefilling
            ]
            context -= sum([request.num_computed_tokens for request in idle])
            held = [request.request_id for request in idle]
        note = (
            tuple(chunks),
            decodes,
            decode_tokens,
            context,
            self._sight.kv_use(scheduler),
            len(running),
            self._sight.waiting(scheduler),
            ended,
            held,
            self._victims,
        )
        self._victims = []
        self._clock.scheduled(output, note)

    def updated(self, scheduler: Any, output: Any, at: float) -> Step | None:
        """vLLM has taken in a step's result, which arrived `at`: write the step down."""
        step = None
        if output.num_scheduled_tokens:
            timed = self._clock.ended(output, at)
            if timed is not None:
                seconds, (*carried, ended, held, preempted) = timed
                number = self._last_ended = self._steps
                self._steps = number + 1
                # With two batches in flight, who was held back may have finished meanwhile:
                # only those who still wait for a token are named.
                named = (
                    self._first_tokens(ended, number, at) if ended else (),
                    self._numbers(held) if held else (),
                    self._numbers(preempted) if preempted else (),
                )
                # By position: this is the one record that is made in the step's path.
                step = Step._make((number, at - self.started, seconds, *carried, *named))
                self._put(step)
        if scheduler.finished_req_ids:
            self._finish(scheduler.finished_req_ids, at)
        return step

    def _start(self, name: str) -> None:
        tracked = self._live.get(name)
        if tracked is not None:
            self.prefilling[name] = tracked

    def _preempt(self, names: Iterable[str]) -> None:
        for name in names:
            self.prefilling.pop(name, None)
            if name in self._live:
                self._live[name].preemptions += 1
        self._victims += names

    def _numbers(self, names: Iterable[str]) -> tuple[int, ...]:
        live = self._live
        return tuple(live[name].number for name in names if name in live)

    def _first_tokens(self, ended: list[Tracked], step: int, at: float) -> tuple[int, ...]:
        got = []
        for tracked in ended:
            if not tracked.request.num_output_tokens:
                continue  # aborted while the step ran
            got.append(tracked.number)
            if tracked.first_token is None:
                tracked.first_token, tracked.first_step = at, step
        return tuple(got)

    def _finish(self, names: Iterable[str], at: float) -> None:
        for name in names:
            tracked = self._live.pop(name, None)
            self.prefilling.pop(name, None)
            if tracked is not None:
                # The ring's other end makes the record: hashing is not for this thread.
                self._put(
                    (tracked, self._sight.block_hashes(tracked.request), at, self._last_ended)
                )

    def record(self, finished: Any, blocks: Callable[[list[bytes]], bytes]) -> Record:
        """Make the record of a finished request; called outside the step's path."""
        if isinstance(finished, Step):
            return finished
        tracked, hashes, at, last_step = finished
        request = tracked.request

        def since(moment: float | None) -> float | None:
            return None if moment is None else moment - self.started

        return Request(
            number=tracked.number,
            arrival=request.arrival_time - self.wall_started,
            prompt=request.num_prompt_tokens,
            output=request.num_output_tokens,
            cached=tracked.cached,
            chunks=tracked.chunks,
            preemptions=tracked.preemptions,
            priority=request.priority,
            name=self._class_of(request),
            scheduled=since(tracked.scheduled),
            first_token=since(tracked.first_token),
            end=at - self.started,
            first_step=tracked.first_step,
            last_step=last_step if tracked.first_step is not None else None,
            reason=_reason(request),
            blocks=blocks(hashes),
        )

    def _class_of(self, request: Any) -> str:
        named = class_of(request)
        return named if named is not None and named in self._classes else OTHER


def _reason(request: Any) -> str:
    reason = str(request.get_finished_reason()).lower()
    return reason if reason in REASONS else OTHER
