"""vLLM's scheduler on a virtual clock: what must hold whatever is simulated."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sim import schedulers_for_tests
from tests.sim.costs_for_tests import LinearCost

from chunkwise.errors import EngineTrouble, UserMistake
from chunkwise.measured import Measured
from chunkwise.settings import Settings
from chunkwise.sim.record import Simulation
from chunkwise.sim.run import WATCHED, Machine, simulate
from chunkwise.sim.sources import Users
from chunkwise.sim.traffic import Shared, Traffic

pytestmark = pytest.mark.engine

HERE = "tests.sim.schedulers_for_tests"
STEPPED = f"{HERE}.stepped_scheduler"
SMALL = Settings(max_num_batched_tokens=256, max_num_seqs=16)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Traffic, Settings, Machine, Users | None, int]:
    seed = draw(st.integers(0, 2**16))
    traffic = Traffic.made(
        draw(st.integers(1, 700)), draw(st.integers(1, 60)), draw(st.integers(1, 25)), 0.9, seed
    )
    users = None
    if draw(st.booleans()):
        users = Users(draw(st.integers(1, 20)), draw(st.sampled_from([0.0, 0.3])), 0.2)
    else:
        traffic = traffic.at_rate(draw(st.sampled_from([1.0, 30.0])), seed)
    if draw(st.booleans()):
        ends = np.cumsum(traffic.prompt // 16)
        tree = np.concatenate([np.arange(n) for n in traffic.prompt // 16])
        traffic = replace(traffic, shared=Shared(tree.astype(np.uint64), ends, 16))
    asynchronous = draw(st.booleans())
    chosen = Settings(
        max_num_batched_tokens=draw(st.sampled_from([16, 100, 2048])),
        max_num_seqs=draw(st.sampled_from([1, 16])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 40])),
        async_scheduling=asynchronous,
        enable_prefix_caching=draw(st.booleans()),
        scheduling_policy=draw(st.sampled_from(["fcfs", "priority"])),
        block_size=draw(st.sampled_from([16, 32])),
    )
    kv = draw(st.integers(200, 8000))
    latency = draw(st.sampled_from([0.0, 0.005]))
    return traffic, chosen, Machine(LinearCost(), kv, 600, latency), users, seed


def same(one: Simulation, other: Simulation) -> bool:
    columns = [
        (getattr(one.steps, field.name), getattr(other.steps, field.name))
        for field in fields(one.steps)
    ]
    columns.append((one.measured.token_times, other.measured.token_times))
    columns.append((one.measured.arrival, other.measured.arrival))
    columns.append((one.cached_tokens, other.cached_tokens))
    return all(a.tobytes() == b.tobytes() for a, b in columns) and one.refused == other.refused


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_what_always_holds(case: tuple[Traffic, Settings, Machine, Users | None, int]) -> None:
    traffic, chosen, machine, users, seed = case
    found = simulate(traffic, chosen, machine, users, seed=seed)
    measured, steps = found.measured, found.steps
    served = np.array([n not in found.refused for n in range(len(traffic))])
    size = chosen.block_size or 16
    longest = min(machine.max_model_len, (machine.kv_tokens // size - 1) * size)
    # Everyone ends, with all tokens, or is refused with a reason.
    wanted = np.minimum(traffic.output, longest - traffic.prompt)
    assert (measured.token_counts[served] == wanted[served]).all()
    assert (measured.token_counts[~served] == 0).all()
    assert all("max_model_len" in reason for reason in found.refused.values())
    # Tokens are conserved: what was computed is what was asked, less the cache, plus repeats.
    computed = int(steps.prefill_tokens.sum() + steps.decodes.sum())
    asked = int((traffic.prompt + wanted - 1)[served].sum() - found.cached_tokens.sum())
    assert computed >= asked if found.preemptions else computed == asked
    # Time is monotone, on the device and for everybody.
    assert (steps.end > steps.start).all()
    assert (steps.start[1:] >= steps.end[:-1]).all()
    assert (measured.ttft[served] >= machine.request_latency).all()
    # Never over the pool, never over the budget.
    assert (steps.kv_use <= 1).all()
    assert (steps.prefill_tokens + steps.decodes <= (chosen.max_num_batched_tokens or 0)).all()
    assert (steps.running <= (chosen.max_num_seqs or 0)).all()


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_many_steps_at_once_equal_single_ones(
    case: tuple[Traffic, Settings, Machine, Users | None, int],
) -> None:
    traffic, chosen, machine, users, seed = case
    at_once = simulate(traffic, chosen, machine, users, seed=seed)
    stepped = simulate(traffic, chosen, machine, users, STEPPED, seed)
    assert same(at_once, stepped)


def test_the_same_seed_gives_the_same_bytes(machine: Machine) -> None:
    def once(seed: int) -> Simulation:
        traffic = Traffic.made(500, 40, 60, 0.5, seed)
        return simulate(traffic, SMALL, machine, Users(8, 0.1, 1.0), seed=seed)

    assert same(once(1), once(1))
    assert not same(once(1), once(2))


def test_steps_scatter_as_the_machine_says(machine: Machine) -> None:
    traffic = Traffic.made(300, 40, 40, 0.5, seed=3)

    def took(scatter: tuple[float, ...], seed: int = 0) -> float:
        uneven = replace(machine, scatter=scatter)
        return float(simulate(traffic, SMALL, uneven, seed=seed).measured.token_times.max())

    assert took((2.0,)) == pytest.approx(2 * took(()))
    assert took((0.5, 1.5)) == took((0.5, 1.5)) != took((0.5, 1.5), seed=1)


def test_a_step_is_priced_and_seen_at_its_end(machine: Machine) -> None:
    traffic = Traffic(np.array([100]), np.array([3]), np.array([0.0]))
    cost = machine.cost
    found = simulate(traffic, replace_async(SMALL, False), machine)
    steps = found.steps
    assert steps.prefill_tokens.tolist() == [100, 0, 0]
    assert steps.decode_context.tolist() == [0, 100, 101]
    from chunkwise.cost.step import StepShape

    first = cost.seconds(StepShape.of([(100, 0)]))
    second = first + cost.seconds(StepShape.of(decodes=[100]))
    assert found.measured.token_times[:2].tolist() == [first, second]


def test_async_hides_no_time_of_the_device(machine: Machine) -> None:
    traffic = Traffic.made(300, 50, 40, 0.5, seed=2)
    ways = [
        simulate(traffic, replace_async(SMALL, on), machine, Users(8)).measured
        for on in (False, True)
    ]
    # The same work; under async who ends frees a place one step later.
    assert ways[0].seconds <= ways[1].seconds <= 1.2 * ways[0].seconds


def replace_async(chosen: Settings, on: bool) -> Settings:
    return chosen.model_copy(update={"async_scheduling": on})


def test_shared_prefixes_hit_as_with_token_ids(machine: Machine) -> None:
    rng = np.random.default_rng(5)
    rows = [np.arange(4)]
    for new in range(1, 30):
        known = rows[rng.integers(len(rows))]
        kept = known[: rng.integers(0, len(known) + 1)]
        rows.append(np.concatenate([kept, np.arange(3) + 100 * new]))
    sizes = np.array([len(row) for row in rows])
    shared = Shared(np.concatenate(rows).astype(np.uint64), np.cumsum(sizes), 24)
    prompts = sizes * 24 + rng.integers(0, 24, len(rows))
    traffic = Traffic(prompts, np.full(len(rows), 5), np.arange(len(rows)) * 1.0, shared)
    found = simulate(traffic, SMALL, machine)

    seen: list[tuple[int, ...]] = []
    for number, row in enumerate(rows):
        ids = tuple(np.repeat(row, 24).tolist()) + (-number - 1,) * int(prompts[number] % 24)
        best = max((equal_start(ids, other) for other in seen), default=0)
        expected = min(best, len(ids) - 1) // 16 * 16
        assert found.cached_tokens[number] == expected
        seen.append(ids)


def equal_start(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def test_steps_beyond_what_was_measured_are_a_note(machine: Machine) -> None:
    one = Traffic(np.array([250]), np.array([4]))
    assert "25.0% of steps are larger" in simulate(one, SMALL, machine).notes[0]
    assert not simulate(Traffic(np.array([150]), np.array([4])), SMALL, machine).notes


@pytest.mark.parametrize("mode", ["observe", "on"])
def test_the_plug_in_decides_and_leaves_nothing_behind(
    machine: Machine, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKWISE", mode)
    monkeypatch.setenv("CHUNKWISE_DIR", str(tmp_path))
    traffic = Traffic.made(500, 40, 30, 0.5).at_rate(30.0)
    found = simulate(traffic, SMALL, machine, scheduler_cls="chunkwise.PacedScheduler")
    assert (found.measured.token_counts == traffic.output).all()
    assert (WATCHED in found.notes) is (mode == "observe")
    assert not list(tmp_path.iterdir())


def test_a_stuck_scheduler_ends_in_a_sentence(machine: Machine) -> None:
    traffic = Traffic.made(500, 40, 10)
    with pytest.raises(EngineTrouble, match=r"stuck at .* requests run"):
        simulate(traffic, SMALL, machine, scheduler_cls=f"{HERE}.stuck_scheduler")


def test_the_scheduler_sees_the_virtual_clock(machine: Machine) -> None:
    schedulers_for_tests.SEEN.clear()
    found = simulate(
        Traffic.made(500, 40, 10),
        SMALL,
        machine,
        scheduler_cls=f"{HERE}.clock_reading_scheduler",
    )
    seen = schedulers_for_tests.SEEN
    assert seen[0] == 0.0
    assert max(seen) <= found.measured.seconds
    assert len(set(seen)) > 40


def test_who_is_too_long_is_refused_and_the_rest_served(machine: Machine) -> None:
    traffic = Traffic(np.array([100, 70_000, 100]), np.array([5, 5, 5]), np.array([0.0, 0.1, 0.2]))
    found = simulate(traffic, SMALL, machine)
    assert list(found.refused) == [1]
    assert found.measured.token_counts.tolist() == [5, 0, 5]


@pytest.mark.parametrize(
    ("kv", "chosen", "words"),
    [
        (16, SMALL, "no room for a request"),
        (1000, SMALL.model_copy(update={"max_model_len": 4000}), "vLLM would not start"),
        (1000, SMALL.model_copy(update={"pipeline_parallel_size": 2}), "pipeline stages"),
    ],
)
def test_machines_that_cannot_serve(
    machine: Machine, kv: int, chosen: Settings, words: str
) -> None:
    with pytest.raises(UserMistake, match=words):
        simulate(Traffic.made(10, 10, 1), chosen, replace(machine, kv_tokens=kv))


def test_nothing_to_simulate(machine: Machine) -> None:
    none = Traffic(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    with pytest.raises(UserMistake, match="nothing to simulate"):
        simulate(none, SMALL, machine)


def test_an_unknown_scheduler_class_is_named(machine: Machine) -> None:
    with pytest.raises(UserMistake, match=r"chunkwise\.NoSuchScheduler"):
        simulate(Traffic.made(10, 10, 1), SMALL, machine, scheduler_cls="chunkwise.NoSuchScheduler")


def test_an_early_end_keeps_what_came(machine: Machine) -> None:
    traffic = Traffic.made(300, 200, 200, 0.5).at_rate(20.0)
    whole = simulate(traffic, SMALL, machine)
    asked: list[float] = []

    def stop(measured: Measured, now: float) -> bool:
        assert measured.token_times.max() <= now
        asked.append(now)
        return len(asked) == 2

    part = simulate(traffic, SMALL, machine, stop=stop)
    came = whole.measured.token_times <= asked[-1]
    assert len(asked) == 2
    assert part.measured.arrival.tolist() == whole.measured.arrival.tolist()
    assert len(part.measured.token_times) == came.sum() < len(came)
    assert same(whole, simulate(traffic, SMALL, machine, stop=lambda measured, now: False))
