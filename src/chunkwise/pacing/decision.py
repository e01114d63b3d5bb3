"""The decision of one step: how many prefill tokens, for whom, in which order.

Invariants, each a test: never above the start-up budget, never below what the
decodes need; with decodes and a truthful cost no step is predicted to take
longer than the allowance (unless nothing at all fits into it: then only the turn
of one that waited too long may add a little); never an empty step while something
can run. Arithmetic on plain numbers, so that the live scheduler, the simulator and
the tests decide alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from chunkwise.cost.step import StepCost, StepShape
from chunkwise.pacing.fill import fill
from chunkwise.pacing.job import Job
from chunkwise.pacing.relegation import price, relegate, stretch
from chunkwise.pacing.room import Room

# Into a turn something always fits, be it by a quarter of what the decodes alone take: a wrong
# prediction that nothing ever fits would never be corrected.
TURN_ADDS, TURN_TOKENS = 1.25, 16


@dataclass(slots=True)
class Moment:
    """What is known when a step is decided."""

    now: float
    budget: int  # of the step, as the engine was started
    decodes: int = 0
    decode_tokens: int = 0  # what they need of the budget
    decode_context: int = 0
    allowance: float = inf  # seconds; infinity if no decode has a target
    most: int = 2**31  # prefill tokens, by the ramp; counts only beside decodes
    free_blocks: int = 2**31
    promised_blocks: int = 0  # still to be taken by prompts that have begun
    starts: int = 2**31  # requests that may begin
    largest: int = 0  # tokens of one chunk; 0: no bound
    may_pass: bool = True  # whether the engine lets a prompt pass one that has begun
    oldest: Job | None = None  # whose turn it is


@dataclass(slots=True)
class Decision:
    """Usage: `decide(moment, jobs, cost).tokens["r1"]`."""

    tokens: dict[str, int]  # of each chosen job, in order
    order: list[Job]  # all jobs, as they should be served
    predicted: float
    aside: set[str]

    @property
    def prefill(self) -> int:
        """Prefill tokens of the step."""
        return sum(self.tokens.values())


def decide(moment: Moment, jobs: Sequence[Job], cost: StepCost) -> Decision:
    """Decide one step. `jobs` are the prompts begun, and the head of those that wait."""
    shape = StepShape(decodes=moment.decodes, decode_context=moment.decode_context)
    allowance = moment.allowance if moment.decodes else inf
    order, aside = list(jobs), set[str]()
    if len(jobs) > 1:
        without = cost.seconds(shape)
        for job in jobs:
            if job.priced != job.left:
                job.work = price(job, shape, without, cost)
                job.priced = job.left
        order, aside = relegate(jobs, moment.now, stretch(shape, allowance, cost))
    left = moment.budget - moment.decode_tokens
    most = min(left, moment.most) if moment.decodes else left
    starts = moment.starts
    oldest = moment.oldest
    if oldest is not None:
        order.sort(key=lambda job: job is not oldest)
        little = shape.with_chunk(min(TURN_TOKENS, oldest.left), oldest.context)
        if allowance < (least := cost.seconds(little)):
            allowance = max(least, cost.seconds(shape) * TURN_ADDS)
    if not moment.may_pass:
        # It would give the tokens meant for another to who has begun, deep in its context.
        order.sort(key=lambda job: not job.started)
    room = Room(moment.free_blocks, moment.promised_blocks, moment.decodes)
    if oldest is not None and not oldest.started and oldest.blocks >= room.left:
        starts = 0  # whatever becomes free is kept for it
    given, seconds = fill(order, shape, allowance, most, cost, room, starts, moment.largest)
    if not given and not moment.decodes and order:
        head = next((job for job in order if job.started), order[0])
        given = [(head, max(1, min(head.left, left)))]
        seconds = cost.seconds(shape.with_chunk(given[0][1], head.context))
    return Decision({job.name: count for job, count in given}, order, seconds, aside)
