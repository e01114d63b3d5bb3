"""`chunkwise.LLM` on the real engine: its surface, its answers and what it decides."""

import gc
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chunkwise.errors import UserMistake
from chunkwise.settings import Settings

pytestmark = pytest.mark.engine

SMALL = {
    "enforce_eager": True,
    "kv_cache_memory_bytes": 2**30,
    "disable_log_stats": True,
}
Make = Callable[..., Any]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Build `chunkwise.LLM`s in this process and stop what was built."""
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from chunkwise import LLM

    made: list[Any] = []

    def build(model: Path, **kwargs: Any) -> Any:
        made.append(LLM(str(model), **{**SMALL, **kwargs}))
        return made[-1]

    yield build
    while made:
        llm = made.pop()
        if "llm_engine" in vars(llm):
            llm.llm_engine.engine_core.shutdown()
        del llm
    gc.collect()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Chunkwise logs; vLLM's loggers do not propagate to pytest's."""
    from chunkwise.engine import llm

    lines: list[str] = []

    class Listener:
        def info(self, text: str, *args: Any) -> None:
            lines.append(f"info {text % args}")

        def warning(self, text: str, *args: Any) -> None:
            lines.append(f"warning {text % args}")

    monkeypatch.setattr(llm, "log", Listener())
    return lines


def ids(count: int, length: int) -> list[dict[str, list[int]]]:
    """Prompts that share nothing."""
    return [
        {
            "prompt_token_ids": [
                100 + n,
                *((7 * n + 11 * i) % 40_000 + 100 for i in range(1, length)),
            ]
        }
        for n in range(count)
    ]


def one_token() -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=2, ignore_eos=True, detokenize=False)


def test_the_whole_surface_is_there() -> None:
    import vllm

    from chunkwise import LLM

    assert issubclass(LLM, vllm.LLM)
    for name, theirs in inspect.getmembers(vllm.LLM, callable):
        if name.startswith("_"):
            continue
        ours = getattr(LLM, name)
        assert inspect.signature(ours) == inspect.signature(theirs), name
        assert ours.__doc__ == theirs.__doc__, name
    accepted = inspect.signature(LLM.__init__).parameters
    assert "model" in accepted
    assert accepted["kwargs"].kind is inspect.Parameter.VAR_KEYWORD


def test_nothing_is_built_before_it_is_needed(timing_30m: Path, make: Make) -> None:
    llm = make(timing_30m, load_format="dummy")
    assert "to be built" in repr(llm)
    assert llm.chunking_stats().steps == 0
    assert "llm_engine" not in vars(llm)
    assert not hasattr(llm, "_repr_html_")
    # Any other method builds the engine that vLLM would build.
    assert llm.get_default_sampling_params() is not None
    assert llm.chunking_settings()["budget"] == 4096
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = llm.nonsense


@pytest.mark.parametrize(
    ("suite", "name", "rate"),
    [
        ([(200, 47)], "uncut", 0.0),
        ([(50, 47), (3, 2156), (47, 47)], "selective", 0.03),
        ([(2, 8000)], "cut", 1.0),
    ],
    ids=["uncut", "selective", "cut"],
)
def test_suites_decide_right_and_the_engine_does_it(
    timing_30m: Path,
    make: Make,
    said: list[str],
    suite: list[tuple[int, int]],
    name: str,
    rate: float,
) -> None:
    llm = make(timing_30m, load_format="dummy")
    prompts = [prompt for count, length in suite for prompt in ids(count, length)]
    outputs = llm.generate(prompts, one_token(), use_tqdm=False)
    assert len(outputs) == len(prompts)
    [line] = said
    assert line.startswith(f"info Chunkwise: {name} (")
    stats = llm.chunking_stats()
    assert stats.requests == len(prompts)
    assert stats.chunking_rate == rate
    assert (stats.chunks == 0) == (rate == 0)
    assert stats.prefill_tokens == sum(len(item["prompt_token_ids"]) for item in prompts)
    assert stats.decode_tokens == len(prompts)
    assert 0 < stats.kv_headroom < 1
    if name == "selective":
        assert llm.chunking_settings()["threshold"] == 2048
        assert stats.chunked_requests == 3
    if name == "cut":
        # Budget 4,096: two pieces a prompt, more where prompts share a step.
        assert llm.chunking_settings()["budget"] == 4096
        assert stats.chunks >= 4
        assert stats.mean_chunk_seconds > 0


def test_the_users_settings_win(timing_30m: Path, make: Make, said: list[str]) -> None:
    llm = make(timing_30m, load_format="dummy", max_num_batched_tokens=1024, max_num_seqs=8)
    llm.generate(ids(2, 3000), one_token(), use_tqdm=False)
    assert llm.chunking_settings()["budget"] == 1024
    assert llm.chunking_settings()["seqs"] == 8


def test_settings_instead_of_auto(timing_30m: Path, make: Make) -> None:
    chunking = Settings(max_num_batched_tokens=512, max_num_seqs=4)
    llm = make(timing_30m, load_format="dummy", chunking=chunking)
    llm.generate(ids(1, 1200), one_token(), use_tqdm=False)
    assert llm.chunking_stats().chunks == 3
    with pytest.raises(UserMistake, match="given twice"):
        make(timing_30m, chunking=chunking, max_num_seqs=5)
    with pytest.raises(UserMistake, match='either "auto" or'):
        make(timing_30m, chunking="sometimes")


def test_a_change_of_data_is_said_once(timing_30m: Path, make: Make, said: list[str]) -> None:
    llm = make(timing_30m, load_format="dummy", kv_cache_memory_bytes=2**25)
    llm.generate(ids(4, 47), one_token(), use_tqdm=False)
    del said[:]
    llm.generate(ids(2, 4600), one_token(), use_tqdm=False)
    llm.generate(ids(2, 4600), one_token(), use_tqdm=False)
    changed = [line for line in said if "prompts have changed" in line]
    assert len(changed) == 1
    assert "was uncut, would now be cut" in changed[0]
    assert "Use max_num_batched_tokens=1024 next time" in changed[0]
    full = [line for line in said if "KV cache" in line]
    assert len(full) == 1
    assert "kv_cache_memory_bytes" in full[0]


def test_fixed_pieces_cut_at_the_same_places(timing_30m: Path, make: Make) -> None:
    llm = make(
        timing_30m,
        load_format="dummy",
        deterministic=True,
        max_num_batched_tokens=1024,
        max_num_seqs=8,
    )
    outputs = llm.generate(ids(5, 2100), one_token(), use_tqdm=False)
    assert len(outputs) == 5
    stats = llm.chunking_stats()
    # 1,024 less 8 decodes, in whole blocks: pieces of 896, three a prompt, whatever the step.
    assert stats.chunks == 15
    kept = llm.chunking_settings()
    assert kept["pieces"] == {"size": 896, "all_prompts": True}
    assert kept["deterministic"]
    assert not kept["prefix_caching"]
    with pytest.raises(UserMistake, match="prefix_caching"):
        make(timing_30m, deterministic=True, enable_prefix_caching=True).generate("a")


@pytest.mark.parametrize("broken", ["tokenizer", "statistics", "engine"])
def test_whatever_fails_the_answers_come(
    timing_30m: Path,
    make: Make,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
) -> None:
    from chunkwise.engine import compat, counters, counting

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("injected")

    if broken == "tokenizer":
        monkeypatch.setattr(compat, "tokenizer", fail)
    elif broken == "statistics":
        monkeypatch.setattr(counters, "create", fail)
    else:
        monkeypatch.setattr(counting, "PATH", "chunkwise.engine.nowhere.Scheduler")
    llm = make(timing_30m, load_format="dummy")
    texts = ["one", "two", "three"]
    assert len(llm.generate(prompts=texts, sampling_params=one_token(), use_tqdm=False)) == 3
    assert any(line.startswith("warning Chunkwise cannot") for line in said)
    if broken != "tokenizer":
        assert llm.chunking_stats() is None


def test_scoring_on_an_engine_built_for_generation(
    timing_30m: Path, make: Make, said: list[str]
) -> None:
    from vllm import SamplingParams

    scoring = SamplingParams(prompt_logprobs=1, max_tokens=1)
    llm = make(timing_30m, load_format="dummy", scoring_limit=2**26)
    llm.generate(ids(2, 47), one_token(), use_tqdm=False)
    # Over a limit of the user's it is refused; over what is free it would be a warning.
    with pytest.raises(UserMistake, match=r"over the limit of 64\.0 MiB: set max_num_batched"):
        llm.generate(ids(2, 47), scoring, use_tqdm=False)
    llm._cw_sized_for_scoring, llm._cw_limit = False, None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chunkwise.engine.scoring_room.scoring_limit", lambda *_: 2**26)
        for _ in range(2):
            assert len(llm.generate(ids(2, 47), scoring, use_tqdm=False)) == 2
    assert len([line for line in said if "not built for scoring" in line]) == 1


def test_counting_that_fails_midway_is_switched_off(
    timing_30m: Path, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    from chunkwise.engine.counters import Counters

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("injected")

    monkeypatch.setattr(Counters, "step", fail)
    llm = make(timing_30m, load_format="dummy")
    assert len(llm.generate(ids(3, 47), one_token(), use_tqdm=False)) == 3
    assert llm.chunking_stats() is None
    assert caplog.text.count("RuntimeError('injected')") == 1


def test_the_users_own_scheduler_stays(timing_30m: Path, make: Make) -> None:
    from chunkwise.engine import recorder

    llm = make(timing_30m, load_format="dummy", scheduler_cls=recorder.PATH)
    llm.generate(ids(3, 47), one_token(), use_tqdm=False)
    assert llm.chunking_stats() is None
    assert llm.llm_engine.engine_core.engine_core.scheduler.steps


def test_an_engine_in_a_process_of_its_own_is_counted_too(
    timing_30m: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")  # vLLM's default
    llm = make(timing_30m, load_format="dummy")
    llm.generate(ids(100, 47), one_token(), use_tqdm=False)
    stats = llm.chunking_stats()
    assert (stats.requests, stats.chunks, stats.decode_tokens) == (100, 0, 100)
