"""The same answers as vLLM's own `LLM`, paced or not, and log-likelihoods that cost less."""

import gc
import pydoc_data.topics
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chunkwise.engine.scoring import Pair, score
from chunkwise.observed import Request
from chunkwise.readers.capture import captures

pytestmark = pytest.mark.engine

OPTIONS = {
    "dtype": "float32",
    "enforce_eager": True,
    "kv_cache_memory_bytes": 2**30,
    "max_model_len": 2048,
    "max_num_seqs": 64,
}
TIE = 1e-3  # between the logarithms of two probabilities: rounding decides which is first
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def real_prompts(count: int) -> list[str]:
    """Paragraphs of the Python manual, which is installed wherever Python is."""
    text = "\n\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    found = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
    kept = (part for part in found if 80 < len(part) < 240 and re.match(r"[A-Z]", part))
    found = list(dict.fromkeys(kept))
    return [f"In other words: {part}\n" for part in found[:: len(found) // count][:count]]


def stop(llm: Any) -> None:
    llm.llm_engine.engine_core.shutdown()
    gc.collect()


@pytest.fixture(scope="module")
def in_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        yield


def greedy(tokens: int = 12, **more: Any) -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=tokens, **more)


def texts(outputs: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(item.outputs[0].text, tuple(item.outputs[0].token_ids)) for item in outputs]


@pytest.fixture(scope="module")
def stock(in_process: None, smollm2: Path) -> dict[str, Any]:
    """What vLLM says, and how it scores a few pairs one by one."""
    from vllm import LLM, SamplingParams

    llm = LLM(str(smollm2), **OPTIONS)
    tokenizer = llm.get_tokenizer()
    pairs = some_pairs(tokenizer)
    params = SamplingParams(temperature=0, prompt_logprobs=1, max_tokens=1, detokenize=False)
    prompts = [{"prompt_token_ids": [*pair.context, *pair.continuation]} for pair in pairs]
    scored = []
    for pair, output in zip(pairs, llm.generate(prompts, params, use_tqdm=False), strict=True):
        rows = output.prompt_logprobs[len(pair.context) :]
        own = [row[token] for token, row in zip(pair.continuation, rows, strict=True)]
        scored.append((sum(item.logprob for item in own), all(item.rank == 1 for item in own)))
    answers = llm.generate(real_prompts(200), greedy(logprobs=2), use_tqdm=False)
    said = {
        "answers": answers,
        "texts": texts(answers),
        "chat": texts(llm.chat(QUESTION, greedy(8), use_tqdm=False)),
        "scored": scored,
        "prefilled": sum(len(item["prompt_token_ids"]) for item in prompts),
    }
    stop(llm)
    return said


@pytest.fixture(scope="module")
def paced(
    stock: dict[str, Any], smollm2: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What a paced engine says when its target is so tight that prompts have to be cut."""
    from vllm import LLM

    folder = tmp_path_factory.mktemp("paced")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHUNKWISE", "on")
        patch.setenv("CHUNKWISE_ITL", "5ms")
        patch.setenv("CHUNKWISE_DIR", str(folder))
        llm = LLM(str(smollm2), scheduler_cls="chunkwise.PacedScheduler", **OPTIONS)
        answers = llm.generate(real_prompts(200), greedy(logprobs=2), use_tqdm=False)
        counts = llm.llm_engine.engine_core.engine_core.scheduler._pacer.counts
        stop(llm)
    (capture,) = captures(folder)
    requests = [record for record in capture.records() if isinstance(record, Request)]
    return {"answers": answers, "counts": counts, "requests": requests}


@pytest.fixture(scope="module")
def ours(stock: dict[str, Any], smollm2: Path) -> Iterator[Any]:
    from chunkwise import LLM

    llm = LLM(str(smollm2), **OPTIONS)
    yield llm
    stop(llm)


def some_pairs(tokenizer: Any) -> list[Pair]:
    """Questions behind a shared text, with single-token and longer choices, one of them twice."""
    shared = " ".join(real_prompts(200)[:6])
    pairs = []
    for question in ("Which language is this about?", "Is this a manual?"):
        context = tuple(tokenizer.encode(f"{shared}\n{question}\nAnswer:"))
        for choice in (
            " Python",
            " Java",
            " It is the Python language",
            " It is a book on C",
            " A",
        ):
            pairs.append(Pair(context, tuple(tokenizer.encode(choice))))
    return [*pairs, pairs[2]]


# First of all: it has an engine of its own, and there is room for one at a time.
def test_pacing_changes_when_and_never_what(paced: dict[str, Any], stock: dict[str, Any]) -> None:
    cut = sum(request.chunks > 1 for request in paced["requests"])
    assert len(paced["requests"]) == 200
    assert cut >= 10
    assert paced["counts"].decode_only > 10
    assert sum(paced["counts"].shares) > 20
    assert paced["counts"].ejected == "the engine stops"
    for mine, theirs in zip(paced["answers"], stock["answers"], strict=True):
        for one, other in zip(mine.outputs, theirs.outputs, strict=True):
            places = zip(one.token_ids, other.token_ids, one.logprobs, other.logprobs, strict=False)
            apart = next((rows for a, b, *rows in places if a != b), None)
            if apart is None:
                assert one.token_ids == other.token_ids
                continue
            for row in apart:  # what comes after it has another past
                first, second = sorted((item.logprob for item in row.values()), reverse=True)[:2]
                assert first - second < TIE, (one.text, other.text)


def test_the_same_text_on_200_real_prompts(ours: Any, stock: dict[str, Any]) -> None:
    prompts = real_prompts(200)
    assert len(set(prompts)) == 200
    assert texts(ours.generate(prompts, greedy(), use_tqdm=False)) == stock["texts"]
    stats = ours.chunking_stats()
    assert (stats.requests, stats.chunks) == (200, 0)


def test_chat_says_the_same(ours: Any, stock: dict[str, Any]) -> None:
    said = texts(ours.chat(messages=QUESTION, sampling_params=greedy(8), use_tqdm=False))
    assert said == stock["chat"]
    assert "Paris" in said[0][0]


@pytest.mark.parametrize("again", [False, True], ids=["first", "all cached"])
def test_scores_are_vllms_and_prefill_less(ours: Any, stock: dict[str, Any], again: bool) -> None:
    pairs = some_pairs(ours.get_tokenizer())
    before = ours.chunking_stats().prefill_tokens
    found = score(ours, pairs, use_tqdm=False)
    prefilled = ours.chunking_stats().prefill_tokens - before
    for mine, (logprob, is_greedy) in zip(found, stock["scored"], strict=True):
        assert mine.logprob == pytest.approx(logprob, abs=1e-3)
        assert mine.greedy == is_greedy
    if not again:
        assert prefilled <= stock["prefilled"] / 2
