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
) -> tuple[list[tuple[Job, int]], StepShape]:
    """Return who gets how many tokens, and the step's shape with them.

    `starts` is how many jobs may begin; `largest` bounds a single chunk (0: nothing does).
    """
    given: list[tuple[Job, int]] = []
    refusals = 0
    barrier = inf  # nobody of a lower priority begins before one that waits for room
    for job in order:
        if most <= 0 or refusals >= MOST_REFUSALS:
            break
        if not job.started and (starts <= 0 or job.priority > barrier):
            continue
        tokens = job.left if job.left < most else most
        if 0 < largest < tokens:
            tokens = largest
        after = shape.with_chunk(tokens, job.context)
        if allowance != inf and cost.seconds(after) > allowance:
            tokens = cost.largest_chunk(shape, allowance, job.context, tokens)
            after = shape.with_chunk(tokens, job.context)
        if tokens <= 0:
            refusals += 1
            continue
        if not room.admits(job):
            barrier = min(barrier, job.priority)
            continue
        starts -= not job.started
        given.append((job, tokens))
        shape = after
        most -= tokens
    return given, shape
