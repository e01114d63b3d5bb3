"""The window over those who wait, and the share of those set aside."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st
from tests.pacing.made_jobs import GPU, jobs

from chunkwise.pacing.decision import Moment, decide
from chunkwise.pacing.job import Job
from chunkwise.pacing.relegation import relegate
from chunkwise.pacing.share import SHARE, Share, too_long
from chunkwise.pacing.window import FEW, LINE, WIDTH, Window

BUDGET = 8192


@given(jobs(most=120), st.sets(st.integers(0, 119)))
def test_the_head_is_what_is_due_first(waiting: list[Job], gone: set[int]) -> None:
    window = Window()
    for job in waiting:
        job.deadline = inf if job.patient else job.deadline + 200  # none is late
        window.add(job)
    for job in waiting:
        job.gone = job.number in gone
    head = window.head(100.0, BUDGET)
    alive = [job for job in waiting if not job.gone and not job.started]
    urgent = sorted(
        (job for job in alive if not job.patient or job.priority),
        key=lambda job: (job.priority, job.deadline, job.number),
    )
    patient = [job for job in alive if job.patient and not job.priority]
    assert head == urgent[:WIDTH] + [job for job in patient if job in head]
    assert {job.name for job in patient[:1]} <= {job.name for job in head}
    assert len(head) <= WIDTH + 2 * LINE
    assert len({job.name for job in head}) == len(head)


def test_looking_costs_the_same_however_many_wait() -> None:
    looks = [0]

    class Seen(Job):
        __slots__ = ()

        def __getattribute__(self, name: str) -> object:
            looks[0] += name == "started"
            return super().__getattribute__(name)

    window = Window()
    for number in range(10_000):
        window.add(Seen(f"r{number}", number, 100, deadline=1000.0 + number))
        window.add(Seen(f"p{number}", number, 100))
    window.head(0.0, BUDGET)
    looks[0] = 0
    assert len(window.head(0.0, BUDGET)) == WIDTH + LINE
    assert 0 < looks[0] <= WIDTH + 2 * LINE


def test_no_more_of_a_line_than_could_fill_the_step() -> None:
    window = Window()
    for number in range(20):
        window.add(Job(f"r{number}", number, 1000))
    assert len(window.head(0.0, 10_000)) == 10
    assert len(window.head(0.0, 1_000)) == FEW
    assert len(window.head(0.0, 100_000)) == LINE


def test_who_cannot_be_in_time_leaves_the_window_and_keeps_its_place_in_line() -> None:
    window = Window()
    late = [Job(f"l{number}", number, 100, deadline=1.0, added=0.0) for number in range(50)]
    for job in late:
        window.add(job)
    fresh = Job("fresh", 99, 100, deadline=11.0, added=10.0)
    window.add(fresh)
    for _ in range(3):
        head = window.head(3.0, BUDGET)
    assert head[0] is fresh
    assert [job.number for job in head[1:]] == list(range(LINE))
    assert window.heads() == [late[0]]


def test_the_lost_stand_behind_those_who_are_only_late_and_have_every_other_turn() -> None:
    window, share = Window(), Share()
    lost = [Job(f"l{number}", number, 100, deadline=1.0, added=0.0) for number in range(20)]
    late = [Job(f"w{number}", number, 100, deadline=7.0, added=6.0) for number in range(20, 40)]
    for job in lost + late:
        window.add(job)
    for _ in range(3):
        head = window.head(8.5, BUDGET)
    order, aside = relegate(head, 8.5, 1.0)
    assert [job.number for job in order] == [*range(20, 20 + LINE), *range(LINE)]
    assert len(aside) == len(order)
    turns = []
    for _ in range(3):
        turns.append(share.whose(window.heads()))
        share.served()
    assert turns == [late[0], lost[0], late[0]]


def test_a_tenth_of_the_steps() -> None:
    share = Share()
    turns = 0
    for _ in range(1000):
        if share.turn(True):
            turns += 1
            share.served()
    assert abs(turns - 1000 * SHARE) <= 1
    assert not share.turn(False)


def test_a_turn_lasts_until_it_is_used_and_is_paid_for() -> None:
    share = Share()
    while not share.turn(True):
        pass
    for _ in range(9):
        assert share.turn(True)
    share.served()
    waits = 0
    while not share.turn(True):
        waits += 1
    assert waits > 50


def test_bounds() -> None:
    assert not too_long(Job("a", 0, 1, deadline=2.0, added=1.0), 2.9)
    assert too_long(Job("a", 0, 1, deadline=2.0, added=1.0), 3.1)
    assert too_long(Job("a", 0, 1, added=0.0), 11.0)


def test_everyone_ends_and_the_late_are_not_forgotten_under_overload() -> None:
    """Short prompts that take more than the machine has; a long one that came first ends too."""
    window, share = Window(), Share()
    gone: set[str] = set()
    long = Job("long", 0, 20_000, deadline=0.5, added=0.0)
    window.add(long)
    begun: list[Job] = []
    now, number, ended_at = 0.0, 1, None
    decodes = 32
    for _ in range(4000):
        for _ in range(2):  # two prompts a step: about twice what fits
            window.add(Job(f"s{number}", number, 900, deadline=now + 1.0, added=now))
            number += 1
        oldest = share.whose([job for job in begun if job.aside] + window.heads())
        wanted = oldest is not None and too_long(oldest, now)
        turn = share.turn(wanted)
        moment = Moment(now, 8192, decodes, decodes, decodes * 500, allowance=0.04)
        moment.oldest = oldest if turn else None
        found = decide(moment, begun + window.head(now, 8192), GPU)
        assert found.predicted <= 0.04 + 1e-9
        now += found.predicted
        for job in found.order:
            tokens = found.tokens.get(job.name, 0)
            if tokens:
                if job is moment.oldest:
                    share.served()
                job.left -= tokens
                job.context += tokens
                if not job.started:
                    job.started = True
                    begun.append(job)
                if not job.left:
                    begun.remove(job)
                    gone.add(job.name)
                    job.gone = True
        if "long" in gone and ended_at is None:
            ended_at = now
    assert ended_at is not None
    assert len(gone) > 1000
