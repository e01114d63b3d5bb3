"""The simulator: vLLM decides each step, the cost source says how long it takes.

The loop is that of vLLM's engine core: take in what has arrived, schedule; with
fewer batches in flight than the engine keeps (two if scheduling is async, else
one) schedule again; else wait for the oldest one's end, which is when its tokens
are seen. Invariant: the clock never goes back, the device works on one batch at
a time in the order of scheduling, and the same input gives the same result.
"""

import math
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from chunkwise.cost.step import StepCost, StepShape
from chunkwise.engine.bare_scheduler import BareScheduler, Batch
from chunkwise.engine.orders import Orders
from chunkwise.engine.virtual_time import VirtualTime, seen_by
from chunkwise.errors import EngineTrouble, UserMistake
from chunkwise.measured import Measured
from chunkwise.settings import Settings
from chunkwise.sim.record import Recorder, Simulation
from chunkwise.sim.scatter import Scattered
from chunkwise.sim.sources import ClosedLoop, OpenLoop, Source, Users
from chunkwise.sim.traffic import Traffic

DEFAULT_BLOCK = 16
PLUG_IN = "chunkwise.PacedScheduler"
QUIET = "chunkwise.engine.scheduler.SimulatedScheduler"  # the same, but it leaves no files behind
WATCHED = "the plug-in only watched: CHUNKWISE=on and a target, such as CHUNKWISE_ITL=50ms, pace"
# A scheduler may pause on purpose; one that does nothing this often in a row is stuck.
PAUSE = 0.001
MOST_PAUSES = 1000
TELL_EVERY = 512  # steps
ASK_EVERY = 1024  # steps; putting the tokens so far in order takes a while

Stop = Callable[[Measured, float], bool]
"""Looks at what has come until now; whether that is enough. Who did not come has no tokens."""


class Prices(Protocol):
    """What the simulator asks of a cost."""

    def seconds(self, shape: StepShape) -> float:
        """Return how long a step takes."""
        ...

    def covers(self, shape: StepShape) -> bool:
        """Tell whether its cost was measured on steps as large."""
        ...


@dataclass(frozen=True, slots=True)
class Machine:
    """What serves: the price of its steps, and the KV cache it has room for."""

    cost: StepCost
    kv_tokens: int
    max_model_len: int
    request_latency: float = 0.0
    """Seconds from a client's sending to the scheduler: network, HTTP, tokenizer."""
    scatter: tuple[float, ...] = ()
    """How many times its price a step takes, drawn from these; none: exactly its price."""


def simulate(
    traffic: Traffic,
    settings: Settings,
    machine: Machine,
    users: Users | None = None,
    scheduler_cls: str | None = None,
    seed: int = 0,
    tell: Callable[[float], None] | None = None,
    stop: Stop | None = None,
) -> Simulation:
    """Serve the traffic on one engine. Usage: `simulate(traffic, Settings(), machine).measured`.

    Without users requests come at their own times; where they have none, all at once.
    `stop` may end it early, now and then: the result is then what came until there.
    """
    if not len(traffic):
        raise UserMistake("There are no requests: there is nothing to simulate.")
    asked = QUIET if scheduler_cls == PLUG_IN else scheduler_cls
    scheduler, longest = _scheduler(settings, machine, asked)
    refused = _refuse(traffic, longest)
    source: Source
    if users is not None:
        source = ClosedLoop(len(traffic), users, machine.request_latency, seed)
    else:
        arrival = np.zeros(len(traffic)) if traffic.arrival is None else traffic.arrival
        source = OpenLoop(arrival, machine.request_latency)
    engine = _Engine(scheduler, _prices(machine, seed), traffic, source, refused, longest)
    if users is None:  # who does not come before an early end keeps the time it was to come at
        engine.recorder.arrival = arrival.tolist()
    with seen_by(scheduler.scheduler, engine.clock):
        engine.run(
            tell, stop and (lambda: stop(engine.recorder.measured(traffic), engine.clock.now))
        )
    notes = engine.notes()
    if asked == QUIET and Orders.read().mode != "on":
        notes += (WATCHED,)
    return engine.recorder.simulation(traffic, refused, notes)


def _prices(machine: Machine, seed: int) -> Prices:
    return Scattered(machine.cost, machine.scatter, seed) if machine.scatter else machine.cost


class _Engine:
    def __init__(
        self,
        scheduler: BareScheduler,
        cost: Prices,
        traffic: Traffic,
        source: Source,
        refused: dict[int, str],
        longest: int,
    ):
        self.clock = VirtualTime()
        self.recorder = Recorder(len(traffic))
        self._scheduler = scheduler
        self._cost = cost
        self._source = source
        self._refused = refused
        self._prompt: list[int] = traffic.prompt.tolist()
        self._output: list[int] = np.minimum(traffic.output, longest - traffic.prompt).tolist()
        self._shared = traffic.shared
        self._classes = traffic.classes
        self._device_free = 0.0
        self._left = len(traffic)
        self._beyond = 0  # steps larger than the cost source has seen

    def notes(self) -> tuple[str, ...]:
        """Say what to keep in mind with the result."""
        if not self._beyond:
            return ()
        share = self._beyond / len(self.recorder.steps)
        return (f"{share:.1%} of steps are larger than what their cost was measured on",)

    def run(
        self, tell: Callable[[float], None] | None, stop: Callable[[], bool] | None = None
    ) -> None:
        scheduler, clock, depth = self._scheduler, self.clock, self._scheduler.depth
        flight: deque[tuple[Batch, float]] = deque()
        total, pauses, steady = self._left, 0, False
        asked = 0
        last: Batch | None = None
        while self._left:
            if stop is not None and len(self.recorder.steps) >= asked + ASK_EVERY:
                asked = len(self.recorder.steps)
                if stop():
                    return
            self._take_in()
            if steady and len(flight) == depth - 1:
                steady = False
                if self._glide(flight, last):
                    continue
            if scheduler.unfinished:
                last = batch = scheduler.schedule()
                if batch.shape.tokens:
                    flight.append((batch, self._start(batch)))
                    pauses = 0
                    if tell is not None and not len(self.recorder.steps) % TELL_EVERY:
                        tell(1 - self._left / total)
                    if len(flight) < depth:
                        continue
                elif not any(other.shape.tokens for other, _ in flight):
                    pauses += 1
                    flight.append((batch, clock.now))
                    self._pause(flight, pauses)
                    continue
                else:
                    # In the queue behind what runs, as vLLM has it; it ends with that.
                    flight.append((batch, flight[-1][1]))
            elif not flight:
                clock.now = max(clock.now, self._source.next())
                continue
            steady = self._end(*flight.popleft())

    def _take_in(self) -> None:
        while due := self._source.due(self.clock.now):  # who is refused may come again at once
            for number, arrival in due:
                self.recorder.arrival[number] = arrival
                if number in self._refused:
                    self._left -= 1
                    self._source.ended(number, arrival)
                    continue
                prefix = None if self._shared is None else self._shared.of(number)
                self._scheduler.add(
                    number,
                    self._prompt[number],
                    self._output[number],
                    prefix,
                    arrival,
                    None if self._classes is None else self._classes[number],
                )

    def _start(self, batch: Batch) -> float:
        start = max(self.clock.now, self._device_free)
        shape, cost = batch.shape, self._cost
        end = self._device_free = start + cost.seconds(shape)
        self._beyond += not cost.covers(shape)
        self.recorder.cached += batch.cached
        self.recorder.steps.append(
            (
                start,
                end,
                self._scheduler.kv_use,
                shape.prefill_tokens,
                shape.chunks,
                shape.decodes,
                shape.decode_context,
                *self._scheduler.counts,
                batch.preempted,
            )
        )
        return end

    def _end(self, batch: Batch, end: float) -> bool:
        """Take in a batch's result; tell whether it was decoding alone, and nobody ended."""
        clock = self.clock
        clock.now = max(clock.now, end)
        produced = self._scheduler.update(batch)
        if produced.tokens:
            self.recorder.came(produced.tokens, clock.now)
        for number in produced.finished:
            self._left -= 1
            self._source.ended(number, clock.now)
        return not produced.finished and not batch.shape.chunks and batch.shape.decodes > 0

    def _glide(self, flight: deque[tuple[Batch, float]], last: Batch | None) -> bool:
        """Take all steps at once until somebody arrives or ends, if only decoding goes on."""
        glide = self._scheduler.glide(last)
        most = 0 if glide is None or last is None else glide.most(last.shape.decodes)
        if not most or glide is None:
            return False
        numbers = array("q", glide.names())
        decodes, context = len(numbers), glide.contexts()
        arrival = self._source.next()
        now, free, cost = self.clock.now, self._device_free, self._cost
        in_flight = [end for _, end in flight]
        spans: list[tuple[float, float]] = []
        while len(spans) < most and now < arrival:
            shape = StepShape(decodes=decodes, decode_context=context + decodes * len(spans))
            start = max(now, free)
            free = start + cost.seconds(shape)
            self._beyond += not cost.covers(shape)
            spans.append((start, free))
            in_flight.append(free)
            now = max(now, in_flight.pop(0))
            self.recorder.came(numbers, now)
        taken = len(spans)
        for (start, end), share in zip(spans, glide.kv_use(taken), strict=True):
            self.recorder.steps.append((start, end, share, 0, 0, decodes, context, decodes, 0, 0))
            context += decodes
        glide.go(taken)
        self.clock.now, self._device_free = now, free
        if flight:  # the same requests again: the batch stands for the one now in flight
            flight[0] = (flight[0][0], in_flight[0])
        return True

    def _pause(self, flight: deque[tuple[Batch, float]], pauses: int) -> None:
        """Nothing runs and nothing was scheduled: let time pass, or say that it is stuck."""
        while flight:  # empty ones
            self._scheduler.update(flight.popleft()[0])
        arrival = self._source.next()
        if pauses < MOST_PAUSES:
            self.clock.now = min(self.clock.now + PAUSE, max(arrival, self.clock.now))
        elif math.isfinite(arrival):
            self.clock.now = max(arrival, self.clock.now)
        else:
            running, waiting = self._scheduler.counts
            raise EngineTrouble(
                f"The scheduler is stuck at {self.clock.now:.3f} s: {running} requests run, "
                f"{waiting} wait, and it schedules none of them. Give more KV cache, or another "
                f"scheduler class."
            )


def _scheduler(
    settings: Settings, machine: Machine, scheduler_cls: str | None
) -> tuple[BareScheduler, int]:
    """Build the scheduler; return it with the longest request that it can serve."""
    size = settings.block_size or DEFAULT_BLOCK
    blocks = machine.kv_tokens // size
    room = (blocks - 1) * size  # vLLM keeps a block for itself
    if room < size:
        raise UserMistake(
            f"The KV cache holds {max(0, machine.kv_tokens):,} tokens, which is no room for a "
            f"request: give more memory, more devices, or a smaller model."
        )
    asked = settings.max_model_len
    if asked is not None and asked > room:
        raise UserMistake(
            f"max_model_len is {asked:,}, but the KV cache holds {room:,} tokens, and vLLM would "
            f"not start: lower the first."
        )
    longest = min(asked or machine.max_model_len, room)
    return BareScheduler(settings, longest, blocks, scheduler_cls), longest


def _refuse(traffic: Traffic, longest: int) -> dict[int, str]:
    """Return the requests that the server would answer with an error."""
    reason = (
        f"the prompt leaves no room in the {longest:,} tokens that max_model_len and the KV cache "
        f"allow"
    )
    return dict.fromkeys(np.flatnonzero(traffic.prompt >= longest).tolist(), reason)
