"""The load client's process: make prompts, let vLLM's client send them (see `load.py`)."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from chunkwise.engine import compat
from chunkwise.engine.bench_client import Ask, play
from chunkwise.lab import orders
from chunkwise.lab.engines import progress, without_weights
from chunkwise.lab.prompts import prompt_ids
from chunkwise.settings import Settings


def run(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Report the machine, then play every order."""
    yield progress("Loading vLLM", 0.0)
    # The client heeds proxies, but none stands between us and loopback.
    direct = (os.environ.get("no_proxy"), "127.0.0.1", "localhost")
    os.environ["no_proxy"] = ",".join(filter(None, direct))
    model = spec["model"]
    resolved = compat.resolve(model, Settings(max_model_len=spec["max_model_len"]))
    stock = next((item for item in compat.defaults() if item.usage == "server"), None)
    found = compat.installed()
    yield {
        "event": "machine",
        "version": found.version if found else "unknown",
        "device": compat.platform_name(),
        "on_cpu": compat.on_cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "budget": stock.budget if stock else resolved.budget,
        "seqs": stock.seqs if stock else resolved.seqs,
        "context": resolved.max_model_len,
        "accepted": sorted(compat.accepted_arguments()),
        "dummy": without_weights(model),
    }
    make = maker(compat.tokenizer(model), resolved.max_model_len)
    for order in orders.received():
        asks = make(order["requests"], order["block_size"])
        try:
            outcomes = play(
                order["url"],
                order["model"],
                asks,
                users=order["users"],
                salt=order["salt"],
                seconds=order["seconds"],
            )
        except TimeoutError:
            yield {"event": "played", "late": True}
        else:
            yield {"event": "played", "late": False, "outcomes": list(map(asdict, outcomes))}


def maker(tokenizer: Any, context: int) -> Callable[[list[Mapping[str, Any]], int], list[Ask]]:
    """Return what turns requests into ids: their own text, or English of their lengths."""

    @lru_cache(maxsize=4096)
    def block_ids(block: int, size: int) -> tuple[int, ...]:
        return tuple(prompt_ids(tokenizer, block, size))

    def ids(number: int, request: Mapping[str, Any], size: int) -> list[int]:
        if request["parts"] is not None:
            return _text_ids(tokenizer, request["parts"])
        made = [token for block in request["blocks"] for token in block_ids(block, size)]
        # Below zero: a number that is no block's.
        rest = request["prompt_tokens"] - len(made)
        return made + (prompt_ids(tokenizer, -1 - number, rest) if rest > 0 else [])

    def make(requests: list[Mapping[str, Any]], size: int) -> list[Ask]:
        made = []
        for number, request in enumerate(requests):
            room = context - request["output_tokens"]
            prompt = ids(number, request, size)[:room]
            made.append(Ask(prompt, request["output_tokens"], request["at"]))
        return made

    return make


def _text_ids(tokenizer: Any, parts: list[Any]) -> list[int]:
    """Return the ids of a prompt's parts: text, or chat messages by the model's template."""
    if len(parts) == 1 and not isinstance(parts[0], str) and tokenizer.chat_template:
        messages, tools = parts[0]["messages"], parts[0].get("tools")
        text = tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=True, tokenize=False
        )
        return list(tokenizer.encode(text, add_special_tokens=False))
    said = [
        part
        if isinstance(part, str)
        else "\n".join(str(message.get("content") or "") for message in part["messages"])
        for part in parts
    ]
    return list(tokenizer.encode("\n".join(said)))
