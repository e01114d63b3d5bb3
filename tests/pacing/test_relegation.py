"""Earliest deadline first, with the longest set aside."""

from itertools import combinations
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pacing.made_jobs import GPU, jobs

from chunkwise.cost.step import StepShape
from chunkwise.pacing.job import Job
from chunkwise.pacing.relegation import LONGEST_STRETCH, price, relegate, stretch


@given(jobs(), st.floats(1, 50))
def test_every_job_once(waiting: list[Job], slower: float) -> None:
    for job in waiting:
        job.work = job.left * 1e-4
    order, aside = relegate(waiting, 100.0, slower)
    assert sorted(job.number for job in order) == sorted(job.number for job in waiting)
    assert all(not job.patient for job in order if job.name in aside)
    priorities = [job.priority for job in order]
    assert priorities == sorted(priorities)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 40)), max_size=7))
def test_no_order_keeps_more_deadlines(sizes: list[tuple[int, int]]) -> None:
    waiting = []
    for number, (work, due) in enumerate(sizes):
        job = Job(f"r{number}", number, 1, deadline=float(due))
        job.work = float(work)
        waiting.append(job)
    order, aside = relegate(waiting, 0.0, 1.0)
    total, kept = 0.0, 0
    for job in order:
        total += job.work
        kept += job.name not in aside
        assert job.name in aside or total <= job.deadline

    def feasible(chosen: tuple[Job, ...]) -> bool:
        total = 0.0
        for job in sorted(chosen, key=lambda job: job.deadline):
            total += job.work
            if total > job.deadline:
                return False
        return True

    best = max(
        size
        for size in range(len(waiting) + 1)
        if any(feasible(chosen) for chosen in combinations(waiting, size))
    )
    assert kept == best


def test_with_time_to_spare_the_short_pass_and_nobody_is_late() -> None:
    long, short, patient = (
        Job("long", 0, 1, deadline=3.6),
        Job("short", 1, 1, deadline=4.0),
        Job("patient", 2, 1),
    )
    long.work, short.work, patient.work = 1.0, 0.1, 0.01
    waiting = [patient, long, short]
    assert relegate(waiting, 0.0, 1.0)[0] == [short, long, patient]
    # Later there is not: three times the work of both would end after the long one's deadline.
    assert relegate(waiting, 0.5, 1.0)[0] == [long, short, patient]
    short.priority = 1
    assert relegate(waiting, 0.0, 1.0)[0][0] is long


def test_no_promise_means_first_come_first_served() -> None:
    waiting = [Job(f"r{number}", number, 9000 - number) for number in (3, 1, 2)]
    order, aside = relegate(waiting, 0.0, 1.0)
    assert [job.number for job in order] == [1, 2, 3]
    assert not aside


def test_who_lost_its_blocks_goes_first() -> None:
    resumed = Job("back", 9, 500, deadline=1.0)
    resumed.resumed = True
    order, _ = relegate([Job("a", 1, 10, deadline=1.0), resumed], 0.0, 1.0)
    assert order[0] is resumed


def test_prefill_is_slower_beside_decodes() -> None:
    shape = StepShape(decodes=64, decode_context=64_000)
    assert stretch(StepShape(), 0.05, GPU) == 1.0
    assert stretch(shape, inf, GPU) == 1.0
    assert 1.0 < stretch(shape, 0.05, GPU) < stretch(shape, 0.02, GPU)
    assert stretch(shape, 0.001, GPU) == LONGEST_STRETCH
    job = Job("a", 0, 1000)
    assert price(job, shape, GPU.seconds(shape), GPU) > 0
    job.left = 0
    assert price(job, shape, GPU.seconds(shape), GPU) == 0
