"""What a step may take: from what was promised, or, with no promise, from what pays.

Invariant: a target is never below what the engine needs for one request and a
small chunk, because such a promise cannot be kept by anyone and would only stop
all prompts; and never infinite once the cost of chunks is known.
"""

from math import inf

from chunkwise.cost.step import StepCost, StepShape

SMALLEST_CHUNK = 16
SMALLEST_CHEAPEST = 64
TWICE = 2.0
AS_CHEAP = 1.1
ROOM = 1.25  # a step with one decode and a small chunk, times this, is the least target
OWN_TIME = 3.0
"""A prompt that alone takes over a third of the first-token target gets three times its own."""


def least(cost: StepCost, context: int) -> float:
    """Return the least that a step must be allowed: one request beside a small chunk.

    By the prediction, right or wrong: if nothing ever fits, it cannot learn better.
    """
    return ROOM * cost.seconds(StepShape(SMALLEST_CHUNK, 1, SMALLEST_CHUNK**2 / 2, 1, context))


def implied(cost: StepCost, budget: int) -> float:
    """Return the target where none was given: twice the step of the cheapest-per-token chunk.

    Of sizes that are about as cheap, the smallest: a larger one would buy nothing.
    """
    size, steps = min(SMALLEST_CHEAPEST, budget), []
    while size <= budget:
        steps.append((size, cost.seconds(StepShape(size, 1, size * size / 2))))
        size *= 2
    best = min(seconds / size for size, seconds in steps)
    if best <= 0:
        return inf
    return next(TWICE * seconds for size, seconds in steps if seconds / size <= best * AS_CHEAP)


def first_token(ttft: float, cost: StepCost, prompt: int) -> float:
    """Return the seconds until a prompt's first token is due."""
    if ttft == inf:
        return inf
    return max(ttft, OWN_TIME * cost.seconds(StepShape(prompt, 1, prompt * prompt / 2)))
