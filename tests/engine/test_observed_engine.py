"""The plug-in in a whole engine with a model: everything at once, against stock vLLM."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.faults import FAULTS, boom

from chunkwise.engine import exporter, scribe
from chunkwise.engine.orders import CLASS_ARGUMENT
from chunkwise.engine.scheduler import PacedScheduler
from chunkwise.observed import Request, Step
from chunkwise.readers.capture import captures

pytestmark = pytest.mark.engine

SHARED = list(range(1000, 1160))
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_max": 3,
    "prompt_lookup_min": 1,
}


def can_draft() -> bool:
    """The CPU build of 0.30.0 cannot: it replaces Triton's kernels where nobody looks any more."""
    import vllm

    return not vllm.__version__.startswith("0.30.0")


def engine(model: Path) -> Any:
    """A small pool, a small budget, priorities, prefix caching, n-gram speculation."""
    from vllm import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    args = EngineArgs(
        model=str(model),
        load_format="dummy",
        dtype="float32",
        max_model_len=2048,
        max_num_seqs=16,
        max_num_batched_tokens=128,
        kv_cache_memory_bytes=16 * 2**20,
        block_size=32,
        enforce_eager=True,
        enable_prefix_caching=True,
        scheduling_policy="priority",
        speculative_config=NGRAM if can_draft() else None,
        seed=0,
    )
    return LLMEngine.from_engine_args(args)


def load(number: int) -> tuple[list[int], dict[str, Any], int]:
    """Request `number`: its tokens, its sampling arguments, its priority."""
    own = [3000 + (7 * number + place) % 900 for place in range(30 + 45 * (number % 4))]
    ids = (SHARED if number % 2 else []) + own
    arguments: dict[str, Any] = {"temperature": 0, "max_tokens": 110 + 9 * (number % 7)}
    arguments["ignore_eos"] = True
    arguments["extra_args"] = {CLASS_ARGUMENT: "chat" if number % 3 else "batch"}
    return ids, arguments, number % 2


def played(running: Any) -> dict[str, list[int]]:
    """Add requests while others run, abort one in mid-prefill; return everyone's tokens."""
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    got: dict[str, list[int]] = {}
    number = 0
    for turn in range(2_000):
        if number < 24:
            ids, arguments, priority = load(number)
            running.add_request(
                f"r{number}",
                {"prompt_token_ids": ids},
                SamplingParams(**arguments),
                priority=priority,
            )
            number += 1
        if turn == 0:
            running.add_request(
                "gone", {"prompt_token_ids": [5] * 1500}, SamplingParams(max_tokens=5), priority=-1
            )
        for output in running.step():
            got[output.request_id] = list(output.outputs[0].token_ids)
        if turn == 3:
            running.abort_request(["gone"])
        if number == 24 and not running.has_unfinished_requests():
            break
    else:
        pytest.fail("requests are left over")
    # Alone, because how long its grammar takes to compile would move the others' steps.
    grammar = StructuredOutputsParams(json=SCHEMA)
    params = SamplingParams(temperature=0, max_tokens=20, structured_outputs=grammar)
    running.add_request("json", {"prompt_token_ids": SHARED}, params)
    while running.has_unfinished_requests():
        for output in running.step():
            got[output.request_id] = list(output.outputs[0].token_ids)
    running.step()
    return got


@pytest.fixture(scope="module")
def running(timing_30m: Path) -> Iterator[Any]:
    """One engine for all: vLLM cannot build a second one that speculates in one process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        built = engine(timing_30m)
        yield built
        built.engine_core.shutdown()
    # vLLM looks through all modules when the next engine starts, and stumbles over one
    # of a library that n-gram speculation brought in.
    for name in [name for name in sys.modules if name.split(".")[0] == "llvmlite"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def both(running: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tokens of stock vLLM, those of the same engine with ours, and the capture."""
    folder = tmp_path_factory.mktemp("seen")
    stock = played(running)
    core = running.engine_core.engine_core
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHUNKWISE_DIR", str(folder))
        patch.setenv("CHUNKWISE_CLASSES", "chat,batch")
        core.scheduler = _ours(core.scheduler)
        watched = played(running)
        core.scheduler._close()
    return stock, watched, folder


def _ours(stock: Any) -> Any:
    return PacedScheduler(
        vllm_config=stock.vllm_config,
        kv_cache_config=stock.kv_cache_config,
        structured_output_manager=stock.structured_output_manager,
        block_size=stock.block_size,
        hash_block_size=stock.hash_block_size,
        log_stats=stock.log_stats,
    )


def test_the_tokens_are_those_of_stock_vllm(both: Any) -> None:
    stock, watched, _ = both
    assert len(stock) >= 25
    assert watched == stock


def test_the_capture_tells_what_was_sent(both: Any) -> None:
    stock, _, folder = both
    (capture,) = captures(folder)
    records = list(capture.records())
    steps = [record for record in records if isinstance(record, Step)]
    requests = sorted(record for record in records if isinstance(record, Request))
    assert len(requests) == 26
    (gone,) = [request for request in requests if request.reason == "abort"]
    assert gone.prompt == 1500
    assert gone.output == 0
    assert gone.chunks > 0
    assert gone.first_token is None
    requests.remove(gone)
    structured = requests.pop()
    assert structured.prompt == len(SHARED)
    assert structured.output == len(stock["json"])
    for number, request in enumerate(requests):
        ids, _, priority = load(number)
        assert request.prompt == len(ids)
        assert request.output == len(stock[f"r{number}"])
        assert request.priority == priority
        assert request.name == ("chat" if number % 3 else "batch")
        assert request.arrival <= (request.scheduled or 0) <= (request.first_token or 0)
    assert [step.number for step in steps] == list(range(len(steps)))
    assert sum(request.cached for request in requests) > 0, "no prefix was reused"
    assert sum(len(step.preempted) for step in steps) > 0, "the pool was not tight"
    assert sum(request.preemptions for request in requests) == sum(
        len(step.preempted) for step in steps
    )
    drafted = sum(step.decode_tokens - step.decodes for step in steps)
    assert drafted > 0 or not can_draft(), "nothing was drafted"
    assert max(step.kv for step in steps) > 0.8


def test_acting_changes_when_not_what(
    running: Any, both: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Speculation, structured output, priorities, prefixes, a small pool: paced."""
    stock, _, _ = both
    monkeypatch.setenv("CHUNKWISE", "on")
    monkeypatch.setenv("CHUNKWISE_ITL", "15ms")
    monkeypatch.setenv("CHUNKWISE_TTFT", "1s")
    monkeypatch.setenv("CHUNKWISE_CLASSES", "chat,batch:ttft=none:itl=none")
    monkeypatch.setenv("CHUNKWISE_DIR", str(tmp_path))
    core = running.engine_core.engine_core
    before = core.scheduler
    core.scheduler = _ours(before)
    assert core.scheduler._pacer is not None
    acted = played(running)
    assert core.scheduler._pacer is not None
    assert sum(core.scheduler._pacer.counts.shares) > 10
    core.scheduler._close()
    core.scheduler = before
    acted.pop("gone", None)
    stock = {name: tokens for name, tokens in stock.items() if name != "gone"}
    assert {name: len(tokens) for name, tokens in acted.items() if name != "json"} == {
        name: len(tokens) for name, tokens in stock.items() if name != "json"
    }
    # Other steps round otherwise, and random weights leave many near-ties.
    same = sum(acted[name] == tokens for name, tokens in stock.items())
    assert same >= 0.8 * len(stock)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_no_request(
    running: Any,
    both: Any,
    tmp_path: Path,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    from vllm import SamplingParams

    monkeypatch.setenv("CHUNKWISE_DIR", str(tmp_path))
    monkeypatch.setattr(scribe, "PAUSE", 0.01)
    monkeypatch.setattr(exporter, "EVERY", 0.0)
    home, name = FAULTS[fault]
    monkeypatch.setattr(home, name, boom)
    scheduler = running.engine_core.engine_core.scheduler
    scheduler._watch()
    got = {}
    for number in range(4):
        ids, arguments, _ = load(number)
        params = SamplingParams(**{**arguments, "max_tokens": 5})
        running.add_request(f"f{number}", {"prompt_token_ids": ids}, params)
    while running.has_unfinished_requests():
        for output in running.step():
            got[output.request_id] = len(output.outputs[0].token_ids)
    assert got == {f"f{number}": 5 for number in range(4)}
    time.sleep(0.1)
    post = scheduler._post
    scheduler._close()
    assert len(lines) == 1, lines
    assert "planted" in lines[0]
    if fault == "stopping":  # its thread is still there
        monkeypatch.undo()
        post.close()
