"""The plug-in on vLLM's real scheduler, stepped with no model."""

import errno
import gzip
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine import no_model
from tests.engine.faults import FAULTS, boom

from chunkwise.engine import capture, clock, exporter, scribe
from chunkwise.engine.orders import CLASS_ARGUMENT
from chunkwise.engine.scheduler import PacedScheduler
from chunkwise.observed import OTHER, Request, Step
from chunkwise.readers.capture import Capture, captures
from chunkwise.readers.gaps import GapFinder

pytestmark = pytest.mark.engine

Build = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHUNKWISE", "observe")
    monkeypatch.setenv("CHUNKWISE_DIR", str(tmp_path / "captures"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "captures"


@pytest.fixture
def build(timing_30m: Path) -> Build:
    def made(blocks: int = 20_000, cls: Any = PacedScheduler, **scheduler: Any) -> Any:
        return no_model.scheduler(cls, no_model.configuration(timing_30m, **scheduler), blocks)

    return made


def only(folder: Path) -> Capture:
    (found,) = captures(folder)
    return found


def split(folder: Path) -> tuple[list[Step], list[Request]]:
    records = list(only(folder).records())
    steps = [record for record in records if isinstance(record, Step)]
    requests = [record for record in records if isinstance(record, Request)]
    return steps, sorted(requests)


def seen_by_hand(scheduler: Any, output: Any, prefilling: set[str]) -> dict[str, Any]:
    """The same facts, found the slow and obvious way."""
    prefilling |= {new.req_id for new in output.scheduled_new_reqs}
    prefilling |= set(output.scheduled_cached_reqs.resumed_req_ids)
    chunks, contexts, tokens = [], [], 0
    for name, new in output.num_scheduled_tokens.items():
        request = scheduler.requests[name]
        before = request.num_computed_tokens - new
        if name in prefilling:
            chunks.append((new, before))
            if request.num_computed_tokens >= request.num_tokens:
                prefilling.discard(name)
        else:
            contexts.append(before)
            tokens += new
    return {
        "chunks": sorted(chunks),
        "decodes": len(contexts),
        "decode_tokens": tokens,
        "decode_context": sum(contexts),
        "preempted": len(output.preempted_req_ids or ()),
    }


@pytest.mark.parametrize("asynchronous", [False, True])
def test_off_is_vllms_own_class(
    build: Build, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    monkeypatch.setenv("CHUNKWISE", "off")
    assert type(build(async_scheduling=asynchronous)) is (
        AsyncScheduler if asynchronous else Scheduler
    )


def test_a_switch_that_is_not_understood_means_off(
    build: Build, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    monkeypatch.setenv("CHUNKWISE", "ture")
    assert type(build()) is Scheduler
    assert len(lines) == 1
    assert "not off, observe or on" in lines[0]


@pytest.mark.parametrize("seed", range(6))
def test_every_step_is_recorded_as_it_was(folder: Path, build: Build, seed: int) -> None:
    """Random traffic with shared prefixes, priorities, aborts and preemptions."""
    from vllm.v1.request import RequestStatus

    rng = random.Random(seed)
    paced = build(
        blocks=rng.choice([90, 150, 20_000]),
        max_num_seqs=rng.choice([4, 32]),
        max_num_batched_tokens=rng.choice([64, 256]),
        long_prefill_token_threshold=rng.choice([0, 48]),
        policy=rng.choice(["fcfs", "priority"]),
    )
    feed = no_model.Feed()
    shared = list(range(50_000, 50_200))
    expected: list[dict[str, Any]] = []
    sent: dict[int, tuple[int, int]] = {}
    aborted: set[int] = set()
    prefilling: set[str] = set()
    for number in range(40):
        prompt = rng.randint(1, 500)
        ids = [*shared[: rng.choice([0, 100, 200])], *range(number * 1000, number * 1000 + prompt)]
        sent[number] = (len(ids), rng.randint(1, 30))
        priority = rng.randint(0, 3)
        paced.add_request(feed(f"r{number}", ids, sent[number][1], priority=priority))
        for _ in range(rng.randint(0, 6)):
            output = paced.schedule()
            if output.num_scheduled_tokens:
                expected.append(seen_by_hand(paced, output, prefilling))
            elif output.preempted_req_ids:
                pytest.fail("a step with victims and no tokens")
            prefilling -= set(output.preempted_req_ids or ())
            paced.update_from_output(output, no_model.result(paced, output))
        if rng.random() < 0.2:
            name = rng.choice([*paced.requests, f"r{number}"])
            if name in paced.requests:
                aborted.add(int(name[1:]))
                prefilling.discard(name)
                paced.finish_requests(name, RequestStatus.FINISHED_ABORTED)
    while paced.has_requests():
        output = paced.schedule()
        if output.num_scheduled_tokens:
            expected.append(seen_by_hand(paced, output, prefilling))
        prefilling -= set(output.preempted_req_ids or ())
        paced.update_from_output(output, no_model.result(paced, output))
    assert paced._watcher is not None
    paced.shutdown()

    steps, requests = split(folder)
    assert [
        {
            "chunks": sorted(step.chunk_sizes),
            "decodes": step.decodes,
            "decode_tokens": step.decode_tokens,
            "decode_context": step.decode_context,
            "preempted": len(step.preempted),
        }
        for step in steps
    ] == expected
    assert [step.number for step in steps] == list(range(len(expected)))
    assert [request.number for request in requests] == list(range(40))
    for request in requests:
        prompt, output = sent[request.number]
        assert request.prompt == prompt
        assert request.reason == ("abort" if request.number in aborted else "length")
        if request.number not in aborted:
            assert request.output == output
            assert request.scheduled is not None
            assert request.first_token is not None
            assert request.arrival <= request.scheduled <= request.first_token <= request.end
        assert len(request.blocks) == 8 * (prompt // no_model.BLOCK)
    hits = sum(request.cached for request in requests)
    assert hits % no_model.BLOCK == 0
    finder = GapFinder()
    gaps = [gap for record in only(folder).records() for gap in finder.take(record)]
    assert sum(gap.requests for gap in gaps) == sum(max(0, r.output - 1) for r in requests)


def test_same_prefix_same_ids_within_a_capture_only(folder: Path, build: Build) -> None:
    feed = no_model.Feed()
    for _ in range(2):
        paced = build()
        for name in "ab":
            paced.add_request(feed(name, list(range(100)), 2))
        list(no_model.drain(paced))
        paced.shutdown()
    first, second = captures(folder)
    (a, b) = [r.blocks for r in first.records() if isinstance(r, Request)]
    (c, _) = [r.blocks for r in second.records() if isinstance(r, Request)]
    assert a == b
    assert len(a) == 8 * 6
    ids = {a[at : at + 8] for at in range(0, 48, 8)}
    assert len(ids) == 6
    assert not ids & {c[at : at + 8] for at in range(0, 48, 8)}


def test_two_batches_in_flight_get_their_own_times(
    folder: Path, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that takes a planted time for each batch, one batch after another."""
    now = [100.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    paced = build(async_scheduling=True, max_num_batched_tokens=128)
    assert "Async" in type(paced).__name__
    feed = no_model.Feed()
    for index, prompt in enumerate((300, 100, 50)):
        paced.add_request(feed(f"r{index}", prompt, 12))
    planted: list[float] = []
    in_flight: list[tuple[Any, float]] = []  # batch, when the device will be done with it
    free_at = 0.0
    rng = random.Random(1)
    while paced.has_requests() or in_flight:
        if paced.has_requests() and len(in_flight) < 2:
            output = paced.schedule()
            now[0] += 0.001  # the engine's own work, while the device runs
            if output.num_scheduled_tokens:
                planted.append(rng.uniform(0.01, 0.2))
                free_at = max(now[0] - 0.001, free_at) + planted[-1]
                in_flight.append((output, free_at))
                continue
        if in_flight:
            output, done = in_flight.pop(0)
            now[0] = max(now[0], done)
            paced.update_from_output(output, no_model.async_result(paced, output))
    paced.shutdown()
    steps, requests = split(folder)
    assert [step.seconds for step in steps] == pytest.approx(planted, abs=2e-6)
    assert [sum(t for t, _ in step.chunk_sizes) for step in steps if step.chunks][:1] == [128]
    assert sum(step.prefill_tokens for step in steps) == 450
    finder = GapFinder()
    gaps = [gap for record in only(folder).records() for gap in finder.take(record)]
    assert sum(gap.requests for gap in gaps) == 3 * 11
    for request in requests:
        assert (request.prompt, request.output) in {(300, 12), (100, 12), (50, 12)}
        first = next(step for step in steps if request.number in step.ended)
        assert request.first_token == pytest.approx(first.end, abs=2e-6)
        assert request.first_step == first.number


# --- failing open -----------------------------------------------------------


def served(scheduler: Any) -> dict[str, int]:
    """Run a small load; return how many tokens each request got."""
    feed = no_model.Feed()
    for index in range(8):
        scheduler.add_request(feed(f"r{index}", 40 + 30 * index, 5))
    got: dict[str, int] = {}
    while scheduler.has_requests():
        output = scheduler.schedule()
        answers = scheduler.update_from_output(output, no_model.result(scheduler, output))
        for one in (item for answer in answers.values() for item in answer.outputs):
            got[one.request_id] = got.get(one.request_id, 0) + len(one.new_token_ids)
    return got


@pytest.mark.parametrize("fault", FAULTS)
def test_our_mistakes_cost_no_request(
    folder: Path, build: Build, lines: list[str], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(scribe, "PAUSE", 0.01)
    monkeypatch.setattr(exporter, "EVERY", 0.0)
    home, name = FAULTS[fault]
    monkeypatch.setattr(home, name, boom)
    paced = build(max_num_batched_tokens=64)
    assert served(paced) == {f"r{index}": 5 for index in range(8)}
    time.sleep(0.1)
    post = paced._post
    paced.shutdown()
    assert len(lines) == 1, lines
    assert "planted" in lines[0]
    assert "Requests are not affected" in lines[0]
    if fault == "stopping":  # its thread is still there
        monkeypatch.undo()
        post.close()


def test_vllms_own_errors_stay_its_own(
    folder: Path, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    paced = build()
    monkeypatch.setattr(Scheduler, "schedule", boom)
    with pytest.raises(RuntimeError, match="planted"):
        paced.schedule()
    assert paced._watcher is not None
    paced.shutdown()


def _without_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    monkeypatch.delattr(KVCacheManager, "usage")


def _without_field(kind: str, field: str) -> Callable[[pytest.MonkeyPatch], None]:
    def remove(monkeypatch: pytest.MonkeyPatch) -> None:
        import chunkwise.engine.compat_scheduler as ours

        real = ours.fields
        monkeypatch.setattr(
            ours,
            "fields",
            lambda of: [f for f in real(of) if of.__name__ != kind or f.name != field],
        )

    return remove


def _without_name(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    def remove(monkeypatch: pytest.MonkeyPatch) -> None:
        from chunkwise.engine import compat

        real = compat.names_in
        monkeypatch.setattr(compat, "names_in", lambda function: real(function) - {name})

    return remove


@pytest.mark.parametrize(
    ("remove", "blind"),
    [
        (_without_usage, "KV use"),
        (_without_field("SchedulerOutput", "preempted_req_ids"), "preemptions"),
        (_without_field("CachedRequestData", "resumed_req_ids"), "resumed requests"),
        (_without_name("block_hashes"), "prefix blocks"),
    ],
)
def test_what_is_missing_is_left_out(
    folder: Path,
    build: Build,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    remove: Any,
    blind: str,
) -> None:
    remove(monkeypatch)
    if blind == "KV use":
        monkeypatch.setattr(
            "vllm.v1.core.sched.scheduler.Scheduler.make_stats", lambda *a, **k: None
        )
    paced = build(blocks=60, max_num_batched_tokens=64)
    assert len(served(paced)) == 8
    paced.shutdown()
    assert only(folder).header.blind == (blind,)
    assert lines == []  # said once, in the line that tells of watching


@pytest.mark.parametrize("name", ["finished_req_ids", "num_computed_tokens", "running"])
def test_without_an_essential_vllm_is_left_alone(
    folder: Path, build: Build, lines: list[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    _without_name(name)(monkeypatch)
    paced = build()
    assert type(paced) is Scheduler
    assert len(lines) == 1
    assert name in lines[0]
    assert not folder.exists()


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ("parallel_config.pipeline_parallel_size", 2, "pipeline parallelism"),
        ("kv_transfer_config", object(), "a KV connector"),
        ("model_config.runner_type", "pooling", "a pooling model"),
    ],
)
def test_what_was_not_tested_is_left_alone(
    build: Build, timing_30m: Path, lines: list[str], where: str, value: Any, said: str
) -> None:
    from chunkwise.engine.compat_scheduler import why_not

    config = no_model.configuration(timing_30m)
    *homes, name = where.split(".")
    home = config
    for part in homes:
        home = getattr(home, part)
    object.__setattr__(home, name, value)
    assert said in (why_not(config, None) or "")


def test_a_clock_that_goes_back_and_forth(
    folder: Path, build: Build, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(0)
    monkeypatch.setattr(clock, "now", lambda: rng.uniform(-1e6, 1e6))
    paced = build(max_num_batched_tokens=64)
    assert len(served(paced)) == 8
    paced.shutdown()
    steps, requests = split(folder)
    assert len(requests) == 8
    assert all(step.seconds >= 0 for step in steps)
    assert lines == []


def test_a_full_disk_ends_the_capture_only(
    folder: Path, build: Build, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(gzip.GzipFile, "flush", full)
    monkeypatch.setattr(scribe, "PAUSE", 0.01)
    paced = build(max_num_batched_tokens=64)
    assert len(served(paced)) == 8
    time.sleep(0.1)
    paced.shutdown()
    assert len(lines) == 1
    assert "No space left" in lines[0]
    assert "the capture ends here" in lines[0]


def test_a_folder_that_cannot_be_written(
    folder: Path, build: Build, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHUNKWISE_DIR", "/proc/chunkwise")
    monkeypatch.setattr(scribe, "PAUSE", 0.01)
    paced = build(max_num_batched_tokens=64)
    assert len(served(paced)) == 8
    time.sleep(0.1)
    paced.shutdown()
    assert len(lines) == 1
    assert "could not write its capture" in lines[0]


def test_nothing_of_a_client_gets_out(
    folder: Path, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Token ids, names, salts and arguments of a request are in no file of ours."""
    monkeypatch.setenv("CHUNKWISE_CLASSES", "chat,batch")
    monkeypatch.setattr(scribe, "PAUSE", 0.01)
    monkeypatch.setattr(exporter, "EVERY", 0.0)
    ids = [90_000_000_000_000 + index for index in range(64)]
    feed = no_model.Feed()
    paced = build()
    for number, named in enumerate(["chat", "planted-class", 7, None]):
        extra = {CLASS_ARGUMENT: named, "api_key": "planted-key"}
        request = feed(
            f"planted-name-{number}", ids, 3, cache_salt="planted-salt", extra_args=extra
        )
        paced.add_request(request)
    plain = list(request.block_hashes)
    list(no_model.drain(paced))
    time.sleep(0.1)
    (text,) = folder.parent.glob("chunkwise-*/*.prom")
    metrics = text.read_text()
    paced.shutdown()
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    raw = gzip.decompress(file.read_bytes())
    for content in (raw, metrics.encode()):
        assert b"planted" not in content
        assert b"90000000000" not in content
        for digest in plain:
            assert digest not in content
            assert digest.hex().encode() not in content
    _, requests = split(folder)
    assert [request.name for request in requests] == ["chat", OTHER, OTHER, OTHER]
    assert 'class="chat"' in metrics
    for digest in plain:
        assert all(digest[:8] not in request.blocks for request in requests)


def test_files_rotate_and_the_oldest_go(
    folder: Path, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scribe, "PAUSE", 0.005)
    monkeypatch.setattr(capture, "PART_BYTES", 600)
    monkeypatch.setattr(capture, "MOST_PARTS", 3)
    paced = build(max_num_batched_tokens=64)
    for _ in range(10):
        served(paced)
        time.sleep(0.02)
    paced.shutdown()
    parts = sorted(folder.iterdir())
    assert 1 < len(parts) <= 3
    assert not parts[0].name.endswith("00001.capture.jsonl.gz")
    steps, requests = split(folder)
    assert [step.number for step in steps] == list(range(steps[0].number, steps[-1].number + 1))
    assert requests[-1].number == 79
    for part in parts:
        first = json.loads(gzip.decompress(part.read_bytes()).splitlines()[0])
        assert first["schema"] == "chunkwise.capture/1"
