"""The pacer on vLLM's real scheduler, stepped with no model and on a clock of ours."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine import no_model
from tests.engine.faults import PACING_FAULTS, boom
from tests.engine.soaking import ITL, Build, Device, builder, soak

from chunkwise.engine import clock, compat_levers, exporter, pacer, prompts, scribe
from chunkwise.engine.orders import CLASS_ARGUMENT
from chunkwise.pacing import decision, watchdog

pytestmark = pytest.mark.engine


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    monkeypatch.setattr(clock, "now", lambda: made.now)
    return made


@pytest.fixture
def build(timing_30m: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    yield from builder(timing_30m, tmp_path, monkeypatch)


def needs_the_cap(paced: Any) -> None:
    if not paced._pacer._levers.cap:
        pytest.skip("this vLLM asks nobody about a chunk's size")


def traffic(scheduler: Any, device: Device, requests: int, seed: int = 0, **more: Any) -> None:
    """Prompts short and long, one every 80 ms or so, until all have ended."""
    feed, rng = no_model.Feed(), random.Random(seed)
    due, number = device.now, 0
    for _ in range(20_000):
        while number < requests and due <= device.now:
            prompt = rng.choice([60, 200, 400, 5000])
            scheduler.add_request(feed(f"r{number}", prompt, rng.randint(5, 40), **more))
            number, due = number + 1, due + rng.expovariate(12.0)
        if number == requests and not scheduler.has_requests():
            return
        if not scheduler.has_requests():
            device.now = due
            continue
        device.step(scheduler)
    raise AssertionError(f"{scheduler.get_request_counts()} never end")


def test_decodes_keep_their_pace_beside_long_prompts(build: Build, device: Device) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    traffic(build(cls=Scheduler), device, 120)
    stock = [s for s, decodes, prefill in device.steps if decodes and prefill]
    device.steps.clear()
    paced = build()
    traffic(paced, device, 120)
    mixed = [s for s, decodes, prefill in device.steps if decodes and prefill][40:]
    assert paced._pacer is not None
    assert max(stock) > 1.8 * ITL
    assert sum(s > ITL for s in mixed) <= 0.01 * len(mixed)
    assert max(mixed) < 1.2 * ITL
    counts = paced._pacer.counts
    assert sum(counts.shares) >= len(mixed)
    assert sum(counts.errors[:3]) > 0.7 * sum(counts.errors)
    assert paced.max_num_scheduled_tokens == 4096


def test_the_budget_alone_does_what_caps_would(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In most steps nobody has to be asked about: it costs a call for each who runs."""
    seen, capped = [], []
    put_cap = pacer.put_cap
    monkeypatch.setattr(pacer, "put_cap", lambda *args: [capped.append(1), put_cap(*args)])
    for _ in range(2):
        device = Device()
        monkeypatch.setattr(clock, "now", lambda device=device: device.now)
        paced = build(async_scheduling=False)
        needs_the_cap(paced)
        capped.clear()
        traffic(paced, device, 120)
        seen.append((device.steps, len(capped)))
        monkeypatch.setattr(pacer.Pacer, "_by_budget_alone", lambda *_: False)
    (alone, few), (with_caps, many) = seen
    assert alone == with_caps
    assert few < 0.7 * many


def test_without_a_target_mixed_steps_stay_near_the_cheapest_chunk(
    build: Build, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CHUNKWISE_ITL")
    monkeypatch.delenv("CHUNKWISE_TTFT")
    paced = build()
    traffic(paced, device, 80)
    mixed = sorted([s for s, decodes, prefill in device.steps if decodes and prefill][40:])
    sizes = [64 * 2**power for power in range(7)]
    costs = {size: 0.008 + 2.5e-5 * size + 2e-9 * size**2 for size in sizes}
    cheapest = min(sizes, key=lambda size: costs[size] / size)
    assert mixed[int(0.99 * len(mixed))] <= 2.2 * costs[cheapest]
    assert paced._pacer is not None


def test_short_prompts_pass_a_long_one(
    build: Build, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKWISE_TTFT", "300ms")
    paced, feed = build(), no_model.Feed()
    needs_the_cap(paced)
    traffic(paced, device, 40)  # to learn
    paced.add_request(feed("talk", 50, 2000))
    while paced.requests["talk"].num_output_tokens < 3:
        device.step(paced)
    paced.add_request(feed("long", 8000, 5))
    device.step(paced)
    paced.add_request(feed("short", 100, 5))
    for _ in range(3):
        device.step(paced)
    assert paced.requests["short"].num_output_tokens > 0
    assert paced.requests["long"].num_output_tokens == 0


def test_a_cached_prefix_is_not_counted_as_work(build: Build, device: Device) -> None:
    paced, feed = build(), no_model.Feed()
    shared = list(range(70_000, 74_000))
    paced.add_request(feed("first", [*shared, 1], 3))
    while paced.has_requests():
        device.step(paced)
    paced.add_request(feed("again", [*shared, 2, 3], 3))
    paced.schedule()
    assert device.prefilled["first"] == 4001
    assert paced.requests["again"].num_computed_tokens == 4002


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_classes_and_priorities(
    build: Build, device: Device, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """Batch work fills what is left, and ends although chat never stops coming."""
    monkeypatch.setenv("CHUNKWISE_CLASSES", "chat,batch:ttft=none:itl=none")
    paced, feed = build(policy=policy), no_model.Feed()
    for number in range(6):
        extra = {CLASS_ARGUMENT: "batch"}
        paced.add_request(feed(f"b{number}", 6000, 4, extra_args=extra, priority=0))
    due, number, first = device.now, 0, {}
    came: dict[str, float] = {}
    while any(name.startswith("b") for name in paced.requests):
        while due <= device.now:
            name = f"c{number}"
            extra = {CLASS_ARGUMENT: "chat"}
            paced.add_request(feed(name, 900, 8, extra_args=extra, priority=0))
            came[name], number, due = due, number + 1, due + 0.06
        device.step(paced)
        for name, request in paced.requests.items():
            if name in came and name not in first and request.num_output_tokens:
                first[name] = device.now
        assert number < 3000, "batch never ends"
    waits = [first[name] - came[name] for name in first]
    assert sorted(waits)[int(0.9 * len(waits))] < 1.0
    assert paced._pacer is not None


def test_a_higher_priority_goes_first(build: Build, device: Device) -> None:
    paced, feed = build(policy="priority"), no_model.Feed()
    for number in range(8):
        paced.add_request(feed(f"low{number}", 3000, 2, priority=5))
    paced.add_request(feed("high", 3000, 2, priority=-1))
    output = device.step(paced)
    assert next(iter(output.num_scheduled_tokens)) == "high"


@pytest.mark.parametrize("seed", range(4))
def test_nobody_is_lost(
    build: Build, device: Device, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    soak(build, device, monkeypatch, 250, seed)


def test_two_batches_in_flight(build: Build, device: Device) -> None:
    paced = build(async_scheduling=True, max_num_batched_tokens=1024)
    assert "Async" in type(paced).__name__
    feed, rng = no_model.Feed(), random.Random(1)
    number, free_at = 0, device.now
    flight: list[tuple[Any, float]] = []
    got: dict[str, int] = {}
    while number < 80 or paced.has_requests() or flight:
        if number < 80 and rng.random() < 0.3:
            paced.add_request(feed(f"r{number}", rng.choice([30, 300, 3000]), 9))
            number += 1
        if paced.has_requests() and len(flight) < 2:
            output = paced.schedule()
            if output.num_scheduled_tokens:
                free_at = max(device.now, free_at) + device.seconds(paced, output)
                flight.append((output, free_at))
                continue
        if flight:
            output, done = flight.pop(0)
            device.now = max(device.now, done)
            answers = paced.update_from_output(output, no_model.async_result(paced, output))
            for one in (item for answer in answers.values() for item in answer.outputs):
                got[one.request_id] = got.get(one.request_id, 0) + len(one.new_token_ids)
    assert got == {f"r{index}": 9 for index in range(80)}
    mixed = [s for s, decodes, prefill in device.steps if decodes and prefill][40:]
    assert max(mixed) < 1.25 * ITL
    assert paced._pacer is not None


def test_a_small_pool_is_not_filled_with_beginnings(build: Build, device: Device) -> None:
    paced, feed = build(blocks=700, max_num_batched_tokens=512), no_model.Feed()
    preempted = 0
    for number in range(12):
        paced.add_request(feed(f"r{number}", 4000, 30))
    while paced.has_requests():
        preempted += len(device.step(paced).preempted_req_ids or ())
    assert preempted == 0


def test_those_for_whom_there_is_no_room_are_not_asked_in_every_step(
    build: Build, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    paced, feed = build(blocks=700, max_num_batched_tokens=512), no_model.Feed()
    looks, look = [], prompts.Prompts.waiting
    monkeypatch.setattr(prompts.Prompts, "waiting", lambda *args: [looks.append(1), look(*args)][1])
    paced.add_request(feed("talk", 5000, 400))
    while paced.requests["talk"].num_output_tokens < 5:
        device.step(paced)
    for number in range(4):
        paced.add_request(feed(f"large{number}", 8000, 5))
    looks.clear()
    for _ in range(100):
        device.step(paced)
    assert 0 < len(looks) <= 100 // prompts.STALE + 1
    paced.add_request(feed("small", 50, 5))
    device.step(paced)
    assert paced.requests["small"].num_computed_tokens, "whoever comes is looked at"
    while paced.has_requests():
        device.step(paced)
    assert paced._pacer is not None


def test_what_it_did_is_a_metric(
    build: Build, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scribe, "PAUSE", 0.01)
    monkeypatch.setattr(exporter, "EVERY", 0.0)
    paced = build()
    traffic(paced, device, 60)
    time.sleep(0.3)
    (file,) = tmp_path.glob("chunkwise-*/*.prom")
    text = file.read_text()
    assert 'chunkwise_pacing_acting{engine="0"} 1.0' in text
    mixed = sum(paced._pacer.counts.shares)
    assert mixed > 20
    assert f'chunkwise_pacing_step_shares_total{{engine="0",le="+Inf"}} {mixed}.0' in text
    assert f'chunkwise_pacing_errors_total{{engine="0",le="+Inf"}} {mixed}.0' in text
    assert "chunkwise_pacing_decode_only_steps_total" in text


# --- failing open ----------------------------------------------------------------


@pytest.mark.parametrize("fault", PACING_FAULTS)
def test_our_mistakes_cost_no_request(
    build: Build,
    device: Device,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    from vllm.v1.core.sched.request_queue import FCFSRequestQueue

    paced = build()
    traffic(paced, device, 6)
    if fault == "a cap":
        needs_the_cap(paced)
    home, name = PACING_FAULTS[fault]
    monkeypatch.setattr(home, name, boom)
    if fault == "leaving":
        monkeypatch.setattr(home, "set_levers", boom)
    traffic(paced, device, 20, seed=1)
    assert paced._pacer is None
    assert len(lines) == 1, lines
    assert "planted" in lines[0]
    assert paced.max_num_scheduled_tokens == 4096
    if fault != "leaving":
        assert type(paced.waiting) is FCFSRequestQueue


def test_no_cap_stays_behind_even_if_restoring_and_leaving_fail(
    build: Build, device: Device, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paced = build()
    needs_the_cap(paced)
    monkeypatch.setattr(pacer.Pacer, "_by_budget_alone", lambda *_: False)
    monkeypatch.setattr(pacer.Pacer, "restore", boom)
    monkeypatch.setattr(pacer.Pacer, "leave", boom)
    traffic(paced, device, 20)
    assert paced._pacer is None
    assert compat_levers.CAP not in vars(paced)
    assert len(lines) == 1


@pytest.mark.parametrize("lever", ["cap", "queue", "free_blocks", "cached"])
def test_a_lever_that_is_missing(
    build: Build, device: Device, monkeypatch: pytest.MonkeyPatch, lever: str
) -> None:
    def gone(*args: Any) -> Any:
        raise AttributeError(lever)

    if lever == "cap":
        monkeypatch.setattr(compat_levers, "CAP", "_no_such_method")
    else:
        monkeypatch.setattr(compat_levers, f"_{lever}", gone)
    paced = build()
    assert getattr(paced._pacer._levers, lever) is None
    traffic(paced, device, 60)
    assert paced._pacer is not None


def test_without_a_budget_to_lower_it_only_observes(
    build: Build, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chunkwise.engine.watch_post.levers_of", lambda scheduler: None)
    paced = build()
    assert paced._pacer is None
    assert paced._watcher is not None
    assert "only observes" in lines[0]


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_a_predictor_that_lies_is_found_out(
    build: Build, device: Device, lines: list[str], monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    honest = pacer.LiveCost.seconds
    monkeypatch.setattr(pacer.LiveCost, "seconds", lambda self, shape: factor * honest(self, shape))
    monkeypatch.setattr(pacer.LiveCost, "update", _update_unseen(honest))
    paced = build()
    traffic(paced, device, 150)
    assert paced._pacer is None
    assert ["far off" in line for line in lines] == [True]


def _update_unseen(honest: Any) -> Any:
    """Learning from the truth, so that only what is asked is a lie."""
    real = pacer.LiveCost.update

    def update(self: Any, shape: Any, seconds: float) -> None:
        lie = type(self).seconds
        type(self).seconds = honest
        real(self, shape, seconds)
        type(self).seconds = lie

    return update


def test_a_policy_that_starves_is_ejected(
    build: Build, device: Device, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = decision.fill

    def unfair(order: Any, *others: Any) -> Any:
        return honest([job for job in order if job.name != "r3"], *others)

    monkeypatch.setattr(decision, "fill", unfair)
    monkeypatch.setattr(watchdog, "BOUND", 5.0)
    monkeypatch.setattr(watchdog, "LEAST_STEPS", 50)
    paced = build()
    paced.add_request(no_model.Feed()("talk", 50, 1500))
    traffic(paced, device, 120)
    assert paced._pacer is None
    assert ["passed by for too long" in line for line in lines] == [True]
    assert paced._post.pacer.counts.ejected


def test_a_clock_that_goes_back_ends_pacing(
    build: Build, device: Device, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paced = build()
    feed = no_model.Feed()
    paced.add_request(feed("a", 100, 20))
    device.step(paced)
    device.step(paced)
    device.now -= 50
    device.step(paced)
    assert paced._pacer is None
    assert "went backwards" in lines[0]
    while paced.has_requests():
        device.step(paced)


def test_what_was_learned_is_kept_for_the_next_start(
    build: Build, device: Device, tmp_path: Path
) -> None:
    first = build()
    traffic(first, device, 100)
    first.shutdown()
    (file,) = (tmp_path / "kept" / "live-0").iterdir()
    assert file.stat().st_size < 10_000
    second = build()
    assert second._pacer._ramp.done
    device.steps.clear()
    traffic(second, device, 60, seed=3)
    mixed = [s for s, decodes, prefill in device.steps if decodes and prefill]
    assert max(mixed) < 1.2 * ITL
    file.write_text("{}")
    third = build()
    assert not third._pacer._ramp.done
