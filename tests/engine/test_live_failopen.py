"""Our mistakes on a live engine with a real model: every request ends, and the log says why.

One engine for all of them; each case begins with a new pacer in it.
"""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.engine.faults import FAULTS, PACING_FAULTS, boom

from chunkwise.cost.live import LiveCost
from chunkwise.engine import compat_levers
from chunkwise.pacing import decision, watchdog

pytestmark = pytest.mark.engine

BUDGET = 2048
WATCHING = {name: FAULTS[name] for name in ("a new request", "a decided step", "a step's result")}
NUMBERS = count()


@pytest.fixture(scope="module")
def engine(timing_30m: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from vllm import LLM

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        patch.setenv("CHUNKWISE", "on")
        patch.setenv("CHUNKWISE_DIR", str(tmp_path_factory.mktemp("kept")))
        llm = LLM(
            str(timing_30m),
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=True,
            kv_cache_memory_bytes=2**29,
            max_model_len=4096,
            max_num_seqs=32,
            max_num_batched_tokens=BUDGET,
            scheduler_cls="chunkwise.PacedScheduler",
        )
        yield llm.llm_engine
        llm.llm_engine.engine_core.shutdown()


Begin = Callable[[], Any]


@pytest.fixture
def begin(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Put a new pacer into the engine's scheduler, which is returned."""
    monkeypatch.setenv("CHUNKWISE_ITL", "40ms")
    monkeypatch.setenv("CHUNKWISE_TTFT", "500ms")
    monkeypatch.setenv("CHUNKWISE_DIR", str(tmp_path / "kept"))
    scheduler = engine.engine_core.engine_core.scheduler

    def made() -> Any:
        scheduler._close()
        if isinstance(scheduler.waiting, compat_levers.PacedQueue):  # leaving was made to fail
            compat_levers.give_back_queue(scheduler, scheduler.waiting)
        scheduler._watch()
        assert scheduler._pacer is not None
        return scheduler

    return made


def serve(engine: Any, requests: int, name: str = "r", talk: int = 24) -> None:
    """Short and long prompts beside one long answer; everyone gets what it asked for."""
    from vllm import SamplingParams

    asked: dict[str, int] = {}
    got: dict[str, int] = {}

    def ask(name: str, prompt: int, tokens: int) -> None:
        number = next(NUMBERS)
        asked[f"{name}-{number}"] = tokens
        ids = [1 + (number * 37 + place * (1 + number % 7)) % 900 for place in range(prompt)]
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        engine.add_request(f"{name}-{number}", {"prompt_token_ids": ids}, params)

    ask("talk", 20, talk)
    step = sent = 0
    while engine.has_unfinished_requests() or sent < requests:
        if not step % 3 and sent < requests:
            ask(name if sent == 1 else "r", (20, 300, 60, 1200)[sent % 4], 3 + sent % 5)
            sent += 1
        for output in engine.step():
            if output.finished:
                got[output.request_id] = len(output.outputs[0].token_ids)
        step += 1
        assert step < 5000, f"these never end: {set(asked) - set(got)}"
    assert got == asked


def handed_back(scheduler: Any, lines: list[str], why: str) -> None:
    from vllm.v1.core.sched.request_queue import FCFSRequestQueue

    assert scheduler._pacer is None
    assert len(lines) == 1, lines
    assert why in lines[0]
    assert scheduler.max_num_scheduled_tokens == BUDGET
    assert scheduler._post.pacer.counts.ejected
    assert type(scheduler.waiting) is FCFSRequestQueue


def test_it_paces_when_nothing_is_wrong(engine: Any, begin: Begin, lines: list[str]) -> None:
    scheduler = begin()
    serve(engine, 24, talk=60)
    assert scheduler._pacer is not None
    assert sum(scheduler._pacer.counts.shares) > 10
    assert lines == []


@pytest.mark.parametrize("fault", [*PACING_FAULTS, *(f"watching: {name}" for name in WATCHING)])
def test_an_exception(
    engine: Any, begin: Begin, lines: list[str], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    scheduler = begin()
    if fault == "a cap" and not scheduler._pacer._levers.cap:
        pytest.skip("this vLLM asks nobody about a chunk's size")
    home, name = {**PACING_FAULTS, **{f"watching: {k}": v for k, v in WATCHING.items()}}[fault]
    serve(engine, 2)
    with monkeypatch.context() as patch:
        patch.setattr(home, name, boom)
        if fault == "leaving":
            patch.setattr(home, "set_levers", boom)
        serve(engine, 8)
    if fault == "leaving":
        assert scheduler._pacer is None
        assert "planted" in lines[0]
        assert scheduler.max_num_scheduled_tokens == BUDGET
    else:
        handed_back(scheduler, lines, "planted")


@pytest.mark.parametrize("lever", ["cap", "queue", "free_blocks", "cached"])
def test_a_lever_that_is_missing(
    engine: Any, begin: Begin, lines: list[str], monkeypatch: pytest.MonkeyPatch, lever: str
) -> None:
    with monkeypatch.context() as patch:
        if lever == "cap":
            patch.setattr(compat_levers, "CAP", "_no_such_method")
        else:
            patch.setattr(compat_levers, f"_{lever}", boom)
        scheduler = begin()
    assert getattr(scheduler._pacer._levers, lever) is None
    serve(engine, 12)
    assert scheduler._pacer is not None
    assert lines == []


def test_no_lever_at_all(
    engine: Any, begin: Begin, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = begin()
    monkeypatch.setattr("chunkwise.engine.watch_post.levers_of", lambda scheduler: None)
    scheduler._close()
    scheduler._watch()
    serve(engine, 8)
    assert scheduler._pacer is None
    assert scheduler._watcher is not None
    assert "only observes" in lines[0]


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_a_predictor_that_lies(
    engine: Any, begin: Begin, lines: list[str], monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    """It learns from the truth, and says something else to whoever asks."""
    seconds, chunk, update = LiveCost.seconds, LiveCost.largest_chunk, LiveCost.update
    learning: list[bool] = []

    def lie(self: Any, shape: Any) -> float:
        return seconds(self, shape) * (1.0 if learning else factor)

    def lying_chunk(self: Any, shape: Any, allowance: float, context: int, at_most: int) -> int:
        return chunk(self, shape, allowance / factor, context, at_most)

    def honest(self: Any, shape: Any, took: float) -> None:
        learning.append(True)
        update(self, shape, took)
        learning.clear()

    monkeypatch.setattr(LiveCost, "seconds", lie)
    monkeypatch.setattr(LiveCost, "largest_chunk", lying_chunk)
    monkeypatch.setattr(LiveCost, "update", honest)
    scheduler = begin()
    serve(engine, 60, talk=400)
    handed_back(scheduler, lines, "far off")


def test_a_policy_that_starves(
    engine: Any, begin: Begin, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = decision.fill

    def unfair(order: Any, *others: Any) -> Any:
        return honest([job for job in order if not job.name.startswith("starved")], *others)

    monkeypatch.setattr(decision, "fill", unfair)
    monkeypatch.setattr(watchdog, "BOUND", 0.5)
    monkeypatch.setattr(watchdog, "LEAST_STEPS", 20)
    scheduler = begin()
    serve(engine, 40, "starved", talk=200)
    handed_back(scheduler, lines, "passed by for too long")
