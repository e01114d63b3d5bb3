"""Give prefill tokens to jobs in their order until the step would take too long.

Each chunk is priced at its own context: the same 512 tokens cost more behind
30,000 others. Invariant: with a truthful cost the step's price stays within the
allowance, and its prefill tokens within `most`.
"""

from collections.abc import Iterable
from math import inf

from chunkwise.cost.step import StepCost, StepShape
from chunkwise.pacing.job import Job
from chunkwise.pacing.room import Room

MOST_REFUSALS = 8  # a job deeper in its context may not fit where the next one does


def fill(
    order: Iterable[Job],
    shape: StepShape,
    allowance: float,
    most: int,
    cost: StepCost,
    room: Room,
    starts: int,
    largest: int = 0,
) -> tuple[list[tuple[Job, int]], float]:
    """Return who gets how many tokens, and the step's price with them.

    `starts` is how many jobs may begin; `largest` bounds a single chunk (0: nothing does).
    """
    given: list[tuple[Job, int]] = []
    seconds = cost.seconds(shape)
    refusals = 0
    barrier = inf  # nobody of a lower priority begins before one that waits for room
    for job in order:
        if most <= 0 or refusals >= MOST_REFUSALS:
            break
        if not job.started and (starts <= 0 or job.priority > barrier):
            continue
        if not room.admits(job):
            barrier = min(barrier, job.priority)
            continue
        tokens = job.left if job.left < most else most
        if 0 < largest < tokens:
            tokens = largest
        after = shape.with_chunk(tokens, job.context)
        price = cost.seconds(after)
        if price > allowance:
            tokens = cost.largest_chunk(shape, allowance, job.context, tokens)
            if tokens <= 0:
                refusals += 1
                continue
            after = shape.with_chunk(tokens, job.context)
            price = cost.seconds(after)
        room.take(job)
        starts -= not job.started
        given.append((job, tokens))
        shape, seconds = after, price
        most -= tokens
    return given, seconds
