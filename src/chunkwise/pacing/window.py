"""The prompts that wait, by deadline, so that a step looks at the first few only.

A sorted window over a heap: what is due soonest stands in the window, the rest
is never walked. Invariant: nothing in the heap is due before anything in the
window, and looking costs the window's length, however many wait. Those whose
deadline cannot be met any more leave it for a line in order of arrival, and that
line for another one when even several times their target is past: serving those
first would make everyone behind them as late.
"""

from bisect import insort
from collections import deque
from heapq import heappop, heappush
from itertools import islice

from chunkwise.pacing.job import Job
from chunkwise.pacing.relegation import by_deadline

WIDTH = 32
LINE = 16  # of those set aside, and of the patient, that a step looks at at most,
FEW = 4  # ... and at least, though the first alone could fill the step
LOST = 5.0  # times its target: later than that, a first token may as well come later still


class Window:
    """Usage: `window.add(job)`; each step `window.head(now, budget)`."""

    def __init__(self) -> None:
        self._soon: list[Job] = []
        self._later: list[tuple[tuple[int, float, int], Job]] = []
        self._aside: deque[Job] = deque()
        self._lost: deque[Job] = deque()
        self._patient: deque[Job] = deque()
        self.relegated = 0  # set aside for good

    def add(self, job: Job) -> None:
        """Take in a job that waits."""
        if job.patient and not job.priority:
            self._patient.append(job)
        elif len(self._soon) == WIDTH and by_deadline(job) > by_deadline(self._soon[-1]):
            heappush(self._later, (by_deadline(job), job))
        else:
            insort(self._soon, job, key=by_deadline)
            if len(self._soon) > WIDTH:
                last = self._soon.pop()
                heappush(self._later, (by_deadline(last), last))

    def head(self, now: float, tokens: int) -> list[Job]:
        """Return the jobs that a step of so many tokens should look at, and forget the gone."""
        soon, self._soon = self._soon, []
        for job in soon:
            if job.started or job.gone:
                continue
            if not job.resumed and not job.priority and now + job.work > job.deadline:
                job.aside = True
                self.relegated += 1
                self._aside.append(job)
            else:
                self._soon.append(job)
        while len(self._soon) < WIDTH and self._later:
            job = heappop(self._later)[1]
            if not (job.started or job.gone):
                self._soon.append(job)
        while self._aside and (self._aside[0].lost or _is_lost(self._aside[0], now)):
            self._aside[0].lost = True
            self._lost.append(self._aside.popleft())
        head = self._soon.copy()
        for line in (self._aside, self._lost, self._patient):
            if line:
                head += _first(line, tokens)
        return head

    def heads(self) -> list[Job]:
        """Return the first of those set aside, of those lost, and of the patient."""
        lines = (self._aside, self._lost, self._patient)
        return [job for line in lines if line for job in _first(line, 0, 1)]


def _is_lost(job: Job, now: float) -> bool:
    return now + job.work > job.added + LOST * (job.deadline - job.added)


def _first(line: deque[Job], tokens: int, few: int = FEW) -> list[Job]:
    """Return the first in a line, until they could take so many tokens."""
    while line and (line[0].started or line[0].gone):
        line.popleft()
    found: list[Job] = []
    for job in islice(line, LINE):
        if job.started or job.gone:
            continue
        found.append(job)
        tokens -= job.left
        if tokens <= 0 and len(found) >= few:
            break
    return found
