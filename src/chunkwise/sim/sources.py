"""When requests arrive: by the clock (open loop), or when others have ended (closed loop).

A request is sent by its client and reaches the scheduler a latency later; `due`
and `next` go by the latter. Invariant: a source hands out each request once, in
order of its arrival, and the same ones for the same seed.
"""

import heapq
import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from chunkwise.errors import UserMistake
from chunkwise.measured import Floats


@dataclass(frozen=True, slots=True)
class Users:
    """A closed loop: each user sends the next request after the last one's answer.

    Usage: `Users(64, think=2.0, stagger=10.0)`: 64 people who begin within ten
    seconds and think for two seconds on average (exponential; 0: at once).
    """

    count: int
    think: float = 0.0
    stagger: float = 0.0

    def __post_init__(self) -> None:
        if self.count < 1 or self.think < 0 or self.stagger < 0:
            raise UserMistake("A closed loop needs a user at least, and no negative times.")


class Source(Protocol):
    """Where requests come from."""

    def due(self, now: float) -> list[tuple[int, float]]:
        """Return the requests that have reached the scheduler by now, and when they were sent."""
        ...

    def next(self) -> float:
        """Return when the next one gets there; infinity if none does before another has ended."""
        ...

    def ended(self, number: int, now: float) -> None:
        """Take note of an answer's end."""
        ...


class OpenLoop:
    """Requests at given times."""

    def __init__(self, sent: Floats, latency: float = 0.0):
        self._sent: list[float] = sent.tolist()
        self._there: list[float] = [*(sent + latency).tolist(), math.inf]
        self._at = 0

    def due(self, now: float) -> list[tuple[int, float]]:
        """Return the requests that have reached the scheduler by now."""
        first = self._at
        while self._there[self._at] <= now:
            self._at += 1
        return [(number, self._sent[number]) for number in range(first, self._at)]

    def next(self) -> float:
        """Return when the next one gets there."""
        return self._there[self._at]

    def ended(self, number: int, now: float) -> None:
        """Nobody waits for an answer here."""


class ClosedLoop:
    """Requests one after another from a number of users."""

    def __init__(self, requests: int, users: Users, latency: float = 0.0, seed: int = 0):
        rng = np.random.default_rng(seed)
        starts = np.sort(rng.uniform(0, users.stagger, min(users.count, requests)))
        self._latency = latency
        self._coming: list[tuple[float, int, float]] = []  # when it gets there, who, when sent
        self._thinking: list[float] = (rng.exponential(1.0, requests) * users.think).tolist()
        self._next = 0
        self._requests = requests
        for start in starts.tolist():
            self._send(start)

    def due(self, now: float) -> list[tuple[int, float]]:
        """Return the requests that have reached the scheduler by now."""
        found = []
        while self._coming and self._coming[0][0] <= now:
            _, number, sent = heapq.heappop(self._coming)
            found.append((number, sent))
        return found

    def next(self) -> float:
        """Return when the next one gets there."""
        return self._coming[0][0] if self._coming else math.inf

    def ended(self, number: int, now: float) -> None:
        """Let the user whose answer ended send the next request, after thinking."""
        if self._next < self._requests:
            self._send(now + self._thinking[self._next])

    def _send(self, when: float) -> None:
        heapq.heappush(self._coming, (when + self._latency, self._next, when))
        self._next += 1
