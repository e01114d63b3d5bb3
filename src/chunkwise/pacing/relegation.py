"""Who goes first: the earliest deadline, but whoever makes too many others late goes last.

Walk in order of deadlines and add up predicted work; when a deadline would be
missed, set the longest job so far aside (Moore and Hodgson: it keeps the most
deadlines possible). If nobody was, there is time to spare, and it goes to the short:
of those who may be last the longest is (Smith: of all orders that keep the
deadlines, the shortest mean wait). Those set aside are not lost: they follow in order of
arrival, and `share.py` sees to it that they are not forgotten. Invariant: the
result holds every job exactly once.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf
from operator import attrgetter

from chunkwise.cost.step import StepCost, StepShape
from chunkwise.pacing.job import Job

SAFE = 3.0
"""A job may be last if so many times all the work ends before its deadline. At 1.5 a busy engine
kept a point fewer of its promises in the simulator; at 3 as many as with the deadlines alone."""
LONGEST_STRETCH = 50.0  # how much slower than alone a prompt is expected to go at worst


def price(job: Job, shape: StepShape, without: float, cost: StepCost) -> float:
    """Return the seconds that a job's tokens add to a step of this shape."""
    if job.left <= 0:
        return 0.0
    return max(0.0, cost.seconds(shape.with_chunk(job.left, job.context)) - without)


def stretch(shape: StepShape, allowance: float, cost: StepCost) -> float:
    """Return how many seconds pass for one of prefill while these decodes go on."""
    if not shape.decodes or allowance == inf:
        return 1.0
    room = allowance - cost.seconds(shape.with_chunk(1, 0))
    if room <= allowance / LONGEST_STRETCH:
        return LONGEST_STRETCH
    return allowance / room


by_deadline = attrgetter("priority", "deadline", "number")
"""Sort key: vLLM's priority first, then the deadline."""


def relegate(jobs: Iterable[Job], now: float, slower: float) -> tuple[list[Job], set[str]]:
    """Return the jobs in the order to serve them, and the names of those set aside.

    Usage: `order, aside = relegate(jobs, now, stretch(shape, allowance, cost))`.
    """
    walk = sorted(jobs, key=by_deadline)
    aside: set[str] = set()
    kept: list[tuple[float, int, str]] = []  # a heap: the longest on top
    total = now
    for job in walk:
        if job.deadline == inf or job.resumed:
            continue
        if job.aside:
            aside.add(job.name)
            continue
        work = job.work * slower
        total += work
        heappush(kept, (-work, job.number, job.name))
        if total > job.deadline:
            longest, _, name = heappop(kept)
            total += longest
            aside.add(name)
    if not aside and len(kept) > 1 and walk[0].priority == walk[-1].priority:
        others = [job for job in walk if job.deadline == inf or job.resumed]
        in_time = [job for job in walk if job.deadline != inf and not job.resumed]
        walk = _short_first(in_time, now, slower) + others
    order: list[Job] = []
    start = 0
    for end in range(1, len(walk) + 1):  # one priority after another
        if end == len(walk) or walk[end].priority != walk[start].priority:
            order += _ranked(walk[start:end], aside)
            start = end
    return order, aside


def _short_first(walk: list[Job], now: float, slower: float) -> list[Job]:
    """Return jobs, given by deadline, so that the short ones pass where nobody is late by it."""
    total = SAFE * slower * sum([job.work for job in walk])
    order: list[Job] = []
    may_be_last: list[tuple[float, int, Job]] = []  # a heap: the longest on top
    left = len(walk)
    while left or may_be_last:
        while left and (walk[left - 1].deadline >= now + total or not may_be_last):
            left -= 1
            job = walk[left]
            heappush(may_be_last, (-job.work, -left, job))
        job = heappop(may_be_last)[2]
        total -= SAFE * slower * job.work
        order.append(job)
    order.reverse()
    return order


def _ranked(walk: list[Job], aside: set[str]) -> list[Job]:
    """Put those who lost their blocks first, then those in time, those aside, the patient."""
    back: list[Job] = []
    in_time: list[Job] = []
    late: list[Job] = []
    patient: list[Job] = []
    for job in walk:
        if job.resumed:
            back.append(job)
        elif job.name in aside:
            late.append(job)
        elif job.deadline == inf:
            patient.append(job)
        else:
            in_time.append(job)
    for line in (back, late):
        if len(line) > 1:
            line.sort(key=lambda job: (job.lost, job.number))
    return back + in_time + late + patient
