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
ROOM = 1.25  # a step with one decode and a small chunk, times this, is the least target
OWN_TIME = 3.0
"""A prompt that alone takes over a third of the first-token target gets three times its own."""


def reachable(itl: float, cost: StepCost, context: int) -> float:
    """Return the inter-token target, raised to what one request beside a small chunk takes."""
    least = cost.seconds(StepShape(SMALLEST_CHUNK, 1, SMALLEST_CHUNK**2 / 2, 1, context))
    return max(itl, ROOM * least)


def implied(cost: StepCost, budget: int) -> float:
    """Return the target where none was given: twice the step of the cheapest-per-token chunk."""
    best, size, target = inf, min(SMALLEST_CHEAPEST, budget), inf
    while size <= budget:
        seconds = cost.seconds(StepShape(size, 1, size * size / 2))
        if 0 < seconds < best * size:
            best, target = seconds / size, TWICE * seconds
        size *= 2
    return target


def first_token(ttft: float, cost: StepCost, prompt: int) -> float:
    """Return the seconds until a prompt's first token is due."""
    if ttft == inf:
        return inf
    return max(ttft, OWN_TIME * cost.seconds(StepShape(prompt, 1, prompt * prompt / 2)))
