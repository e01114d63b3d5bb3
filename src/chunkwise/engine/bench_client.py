"""vLLM's own benchmark client as a library: send these requests, say what came back.

The client times, streams and counts; here it is only called. Only for a process
of our own (`chunkwise.lab.load`). Invariant: nothing of a prompt or an answer
leaves this file, only lengths, times and the kind of an error.
"""

import asyncio
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chunkwise.engine import compat
from chunkwise.errors import EngineTrouble


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: its prompt's ids, and when it is to be sent (seconds from the start)."""

    prompt: list[int]
    output_tokens: int
    at: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the client saw of one request; `error` is empty if it was answered."""

    sent: float
    prompt_tokens: int
    ttft: float
    gaps: list[float]
    error: str


def play(
    url: str, model: str, asks: Sequence[Ask], *, users: int | None, salt: str, seconds: float
) -> list[Outcome]:
    """Send the requests, at their times or by so many users, and wait for all answers.

    `salt` keeps the server's prefix cache from knowing these prompts from an earlier run.
    """
    compat.load_vllm()
    from vllm.benchmarks import serve
    from vllm.benchmarks.datasets import SampleRequest

    known = inspect.signature(serve.benchmark).parameters
    if users is None and "self_timed" not in known:
        raise EngineTrouble(
            "This vLLM's benchmark client cannot send at given times: use --users instead of "
            "a rate or a trace, or vLLM 0.24 or newer."
        )
    wanted: dict[str, Any] = {
        "task_type": serve.TaskType.GENERATION,
        "endpoint_type": "openai",
        "api_url": f"{url}/v1/completions",
        "base_url": url,
        "model_id": model,
        "model_name": model,
        "tokenizer": None,
        "input_requests": [
            SampleRequest(
                prompt=ask.prompt,
                prompt_len=len(ask.prompt),
                expected_output_len=ask.output_tokens,
                **({} if users else {"timestamp": ask.at}),
            )
            for ask in asks
        ],
        "logprobs": None,
        "request_rate": float("inf"),
        "burstiness": 1.0,
        "disable_tqdm": True,
        "num_warmups": 0,
        "profile": False,
        "selected_percentile_metrics": ["ttft"],
        "selected_percentiles": [99.0],
        "ignore_eos": True,  # every arm does the same work
        "goodput_config_dict": {},
        "max_concurrency": users,
        "lora_modules": None,
        "extra_headers": None,
        "extra_body": {"temperature": 0, "cache_salt": salt},
        "ready_check_timeout_sec": 0,
        "self_timed": users is None,
    }
    chosen = {name: value for name, value in wanted.items() if name in known}
    serve.freeze_gc_heap()  # as the client's own main does: no pauses for what stays anyway
    result = asyncio.run(asyncio.wait_for(serve.benchmark(**chosen), seconds))
    columns = ("start_times", "input_lens", "output_lens", "ttfts", "itls", "errors")
    rows = zip(*(result[name] for name in columns), strict=True)
    return [
        Outcome(sent, length, ttft, _every(gaps, made), _kind(error, ttft))
        for sent, length, made, ttft, gaps, error in rows
    ]


def _every(gaps: list[float], made: int) -> list[float]:
    """Return a gap for every token after the first.

    A server whose front end is busy sends two tokens in one piece, and the client times
    pieces: what came with another token came without a gap.
    """
    return gaps + [0.0] * (made - 1 - len(gaps))


def _kind(error: str, ttft: float) -> str:
    """Return an error's name without its text, which may quote a prompt."""
    lines = error.strip().splitlines()
    if not lines:
        return "" if ttft else "no answer"
    name = lines[-1].split(":")[0].split(".")[-1].strip()
    return name[:60] or "unknown error"
