"""A tenth of the steps for the oldest of those who wait too long.

Prompts that were set aside, or to which nothing was promised, wait behind the
others. Moving the late to the front collapses under overload: everyone is late
then. So the oldest earns a tenth of a turn with each step, and while it is its
turn it goes first and nobody else may begin. Invariant: while one waits past
its bound, turns come to at least a tenth of the steps; a turn lasts until the
oldest got a token, and what it lasts is paid for before the next; those who are
past saving have every other turn, so that they neither hold up the others nor starve.
"""

from collections.abc import Iterable
from math import inf

from chunkwise.pacing.job import Job

SHARE = 0.1
PATIENCE = 10.0  # seconds, where nothing was promised
MOST_CREDIT = 1.0
MOST_DEBT = 200.0


def too_long(job: Job, now: float) -> bool:
    """Tell whether a job has waited past its bound: twice its target, or some seconds."""
    if job.deadline == inf:
        return now - job.added > PATIENCE
    return now - job.deadline > job.deadline - job.added


class Share:
    """Usage: each step `if share.turn(somebody_waits_too_long): …`, then `share.served()`."""

    def __init__(self) -> None:
        self._credit = 0.0
        self._open = False
        self._lost_next = False

    def whose(self, late: Iterable[Job]) -> Job | None:
        """Return the oldest; every other time, of those who are lost anyway."""
        return min(late, key=lambda job: (job.lost != self._lost_next, job.number), default=None)

    def turn(self, wanted: bool) -> bool:
        """Tell whether this step is the oldest one's."""
        if not wanted:
            self._open = False
            self._credit = min(self._credit, 0.0)
            return False
        self._credit = min(MOST_CREDIT, self._credit + SHARE)
        if self._open or self._credit >= MOST_CREDIT - 1e-9:
            self._open = True
            self._credit = max(-MOST_DEBT, self._credit - 1.0)
        return self._open

    def served(self) -> None:
        """The oldest got a token: its turn is over."""
        self._open = False
        self._lost_next = not self._lost_next
