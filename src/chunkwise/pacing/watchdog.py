"""When to give up: the pure part of what ejects the pacer, as Linux does with CPU schedulers.

A policy may be wrong about a machine or simply have a mistake in it. Whoever can
run and gets nothing for a minute while others are served, predictions that stay
far off, or a clock that goes back: each is a reason to leave the engine to its
own scheduler. Invariant: a reason is a sentence's end for a person; overload
alone is none, because then the oldest is served, only late.
"""

from collections.abc import Iterable
from math import log

BOUND = 60.0  # seconds without a token
LEAST_STEPS = 200  # that the engine must have taken meanwhile
LEAST_PREDICTIONS = 100
FAR = log(2.0)  # mean distance of log(measured / predicted) that is too far
FARTHEST = log(20.0)  # a single step counts at most this much
MEMORY = 0.99  # of that mean: about a hundred steps
WENT_BACK = "the clock went backwards"


class Watchdog:
    """Usage: `reason = dog.look(now, "r1", 300, 512, held)`; None while all is well."""

    def __init__(self) -> None:
        self._now = float("-inf")
        self._steps = 0
        self._oldest: tuple[str, int] | None = None
        self._since = (0.0, 0)  # seconds and steps
        self._passed_by = False
        self._held: dict[int, tuple[float, int]] = {}
        self._off = 0.0
        self._predictions = 0

    def look(
        self,
        now: float,
        oldest: str | None,
        left: int,
        others: int,
        held: Iterable[int] = (),
        steps: int = 1,
    ) -> str | None:
        """Take in what happened until now, in so many steps.

        `oldest` is the first in line with so many tokens `left`, `others` are the prefill
        tokens that went to anyone else, `held` the decodes that got nothing.
        """
        if now < self._now:
            return WENT_BACK
        self._now = now
        self._steps += steps
        here = None if oldest is None else (oldest, left)
        if here != self._oldest:
            self._oldest, self._since, self._passed_by = here, (now, self._steps), False
        self._passed_by |= others > 0
        if here is not None and self._passed_by and self._long(*self._since):
            return "a request that could run was passed by for too long"
        if held or self._held:
            self._held = {one: self._held.get(one, (now, self._steps)) for one in held}
            if any(self._long(*since) for since in self._held.values()):
                return "a request that generates got no token for too long"
        return None

    def predicted(self, predicted: float, seconds: float) -> str | None:
        """Take in how long a step was thought to take, and how long it took."""
        if predicted <= 0 or seconds <= 0:
            return None
        off = min(FARTHEST, abs(log(seconds / predicted)))
        self._off = MEMORY * self._off + (1 - MEMORY) * off
        self._predictions += 1
        if self._predictions >= LEAST_PREDICTIONS and self._off > FAR:
            return "its predictions stay far off"
        return None

    def _long(self, since: float, step: int) -> bool:
        return self._now - since > BOUND and self._steps - step >= LEAST_STEPS
