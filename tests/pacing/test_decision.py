"""The guarantees of one step's decision."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st
from tests.pacing.made_jobs import GPU, costs, jobs

from chunkwise.cost.fitted import FittedCost
from chunkwise.cost.step import StepShape
from chunkwise.pacing.decision import TURN_ADDS, TURN_TOKENS, Decision, Moment, decide
from chunkwise.pacing.job import Job
from chunkwise.pacing.targets import SMALLEST_CHUNK, least


@st.composite
def moments(draw: st.DrawFn) -> Moment:
    budget = draw(st.integers(64, 16_384))
    decodes = draw(st.integers(0, 64))
    return Moment(
        now=100.0,
        budget=budget,
        decodes=decodes,
        decode_tokens=decodes,
        decode_context=decodes * draw(st.integers(1, 20_000)),
        allowance=draw(st.one_of(st.just(inf), st.floats(1e-3, 1.0))),
        most=draw(st.integers(1, 20_000)),
        free_blocks=draw(st.integers(0, 5000)),
        promised_blocks=draw(st.integers(0, 2000)),
        starts=draw(st.integers(0, 40)),
        largest=draw(st.sampled_from([0, 0, 32, 512])),
    )


def decided(moment: Moment, waiting: list[Job], cost: FittedCost, turn: bool) -> Decision:
    if turn and waiting:
        moment.oldest = min(waiting, key=lambda job: job.number)
    return decide(moment, waiting, cost)


@given(moments(), jobs(), costs, st.booleans())
def test_between_what_decodes_need_and_the_budget(
    moment: Moment, waiting: list[Job], cost: FittedCost, turn: bool
) -> None:
    found = decided(moment, waiting, cost, turn)
    assert found.prefill >= 0
    assert moment.decode_tokens + found.prefill <= moment.budget
    assert sorted(job.name for job in found.order) == sorted(job.name for job in waiting)
    for job in waiting:
        assert 0 <= found.tokens.get(job.name, 0) <= job.left


@given(moments(), jobs(), costs, st.booleans())
def test_a_truthful_prediction_keeps_the_allowance(
    moment: Moment, waiting: list[Job], cost: FittedCost, turn: bool
) -> None:
    found = decided(moment, waiting, cost, turn)
    if not moment.decodes:
        return
    shape = StepShape(decodes=moment.decodes, decode_context=moment.decode_context)
    alone = cost.seconds(shape)
    for job in waiting:
        shape = shape.with_chunk(found.tokens.get(job.name, 0), job.context)
    seconds = cost.seconds(shape)
    assert seconds <= found.predicted * (1 + 1e-9)
    if moment.oldest is not None and moment.oldest.left:
        tokens = min(TURN_TOKENS, moment.oldest.left)
        decodes = StepShape(decodes=moment.decodes, decode_context=moment.decode_context)
        little = cost.seconds(decodes.with_chunk(tokens, moment.oldest.context))
        assert seconds <= max(moment.allowance, TURN_ADDS * alone, little) * (1 + 1e-9)
    elif alone <= moment.allowance:
        assert seconds <= moment.allowance * (1 + 1e-9)
    else:
        assert not found.tokens


@given(moments(), jobs(least=1), costs)
def test_into_a_turn_something_always_fits(
    moment: Moment, waiting: list[Job], cost: FittedCost
) -> None:
    oldest = moment.oldest = min(waiting, key=lambda job: job.number)
    oldest.started = True
    found = decide(moment, waiting, cost)
    room = min(moment.budget - moment.decode_tokens, moment.most if moment.decodes else 2**31)
    if oldest.left and room > 0:
        assert found.tokens[oldest.name] >= min(
            TURN_TOKENS, oldest.left, room, moment.largest or 16
        )


@given(moments(), jobs(least=1), costs, st.booleans())
def test_never_an_empty_step_while_something_can_run(
    moment: Moment, waiting: list[Job], cost: FittedCost, turn: bool
) -> None:
    found = decided(moment, waiting, cost, turn)
    assert moment.decode_tokens + found.prefill > 0
    if not moment.decodes:
        assert found.tokens


@given(moments(), jobs(), costs)
def test_what_begins_fits(moment: Moment, waiting: list[Job], cost: FittedCost) -> None:
    found = decide(moment, waiting, cost)
    begun = [job for job in waiting if job.name in found.tokens and not job.started]
    if moment.decodes or any(job.started for job in waiting):
        assert len(begun) <= moment.starts
        room = moment.free_blocks - moment.promised_blocks - moment.decodes
        assert not begun or sum(job.blocks for job in begun) < room


def test_no_decodes_the_whole_budget() -> None:
    waiting = [Job("a", 0, 5000), Job("b", 1, 9000)]
    found = decide(Moment(0.0, 8192, allowance=0.01, most=1), waiting, GPU)
    assert found.tokens == {"a": 5000, "b": 3192}


def test_an_urgent_prompt_passes_a_long_one_that_runs() -> None:
    long = Job("long", 0, 60_000, 20_000, deadline=9.0, started=True)
    short = Job("short", 1, 300, deadline=1.0)
    moment = Moment(0.0, 8192, 4, 4, 4000, allowance=0.02)
    found = decide(moment, [long, short], GPU)
    assert next(iter(found.tokens)) == "short"
    assert found.tokens["short"] == 300


def test_deeper_context_gets_a_smaller_chunk() -> None:
    def tokens(context: int) -> int:
        moment = Moment(0.0, 8192, 4, 4, 4000, allowance=0.04)
        return decide(moment, [Job("a", 0, 8000, context, started=True)], GPU).prefill

    assert tokens(0) > tokens(30_000) > tokens(100_000)


def test_in_the_turn_of_one_that_does_not_fit_nobody_begins() -> None:
    huge = Job("huge", 0, 900, blocks=1000)
    small = Job("small", 1, 100, blocks=5)
    moment = Moment(0.0, 8192, 4, 4, 4000, allowance=0.05, free_blocks=500)
    assert list(decide(moment, [huge, small], GPU).tokens) == ["small"]
    moment.oldest = huge
    assert not decide(moment, [huge, small], GPU).tokens


def test_no_lower_priority_begins_before_one_that_waits_for_room() -> None:
    first = Job("first", 0, 900, blocks=1000, priority=0)
    second = Job("second", 1, 100, blocks=5, priority=1)
    begun = Job("begun", 2, 100, priority=1, started=True)
    moment = Moment(0.0, 8192, 4, 4, 4000, allowance=0.05, free_blocks=500)
    assert list(decide(moment, [first, second, begun], GPU).tokens) == ["begun"]


@given(costs, st.integers(1, 20_000))
def test_beside_one_request_a_small_chunk_always_fits(cost: FittedCost, context: int) -> None:
    # Whatever the cost says, true or not: a prompt that never runs teaches nothing.
    moment = Moment(0.0, 2048, 1, 1, context, allowance=least(cost, context))
    found = decide(moment, [Job("r0", 0, left=500, blocks=1)], cost)
    assert found.prefill >= SMALLEST_CHUNK


def test_where_nobody_may_pass_those_who_have_begun_are_served_and_priced_first() -> None:
    urgent = Job("urgent", 1, 200, deadline=0.5, blocks=1)
    begun = Job("begun", 0, 9000, 30_000, deadline=9.0, started=True)
    for may_pass, first in ((True, "urgent"), (False, "begun")):
        moment = Moment(0.0, 8192, 8, 8, 8000, allowance=0.04, may_pass=may_pass)
        assert next(iter(decide(moment, [begun, urgent], GPU).tokens)) == first
