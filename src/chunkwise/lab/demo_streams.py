"""Small requests are streaming when two long prompts arrive (runs inside `child.py`).

The scenario, the same for every arm: three small requests are under way; then,
at one moment, two long prompts and three more small requests arrive in that
order. What differs between arms is only vLLM's settings. Each arm is a fresh
engine, warmed up with other prompts of the same lengths.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from chunkwise.engine import compat
from chunkwise.engine.stepper import Stepper
from chunkwise.lab.engines import demo_model, demo_options, model_context, progress
from chunkwise.lab.prompts import Tokenizer, prompt_ids
from chunkwise.settings import Settings

SMALL_PROMPT = 40
STREAMING_OUTPUT = 48  # long enough to be still streaming when the long prompts are read
OTHER_OUTPUT = 8
HEAD_START = 8  # tokens that each early request has before the long prompts arrive
ROOM_BEHIND_PROMPT = 64
# A request's kind -> how many of it there are.
EARLY, LONG, LATE = "early", "long", "late"
CROWD = {EARLY: 3, LONG: 2, LATE: 3}


@dataclass(frozen=True)
class Arm:
    """One way to run the scenario; `None` leaves a value to vLLM."""

    name: str
    budget: int | None = None
    threshold: int | None = None
    chunked: bool = True


def run(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Run every arm and report what each request saw."""
    yield progress("Loading the model", 0.01)
    model = demo_model(spec["model"])
    yield progress("Loading vLLM", 0.03)
    stock = next(item for item in compat.defaults() if item.usage == "server")
    context = model_context(model)
    length = min(2 * stock.budget + 32, context - ROOM_BEHIND_PROMPT)
    yield {
        "event": "scenario",
        "default_budget": stock.budget,
        "default_reason": stock.reason,
        "long_prompt": length,
        "long_enough": length >= 2 * stock.budget,
        "small_prompt": SMALL_PROMPT,
    }
    tokenizer = compat.tokenizer(model)
    plan = arms(spec.get("sweep"), stock.budget)
    for number, arm in enumerate(plan):
        start, share = 0.1 + 0.9 * number / len(plan), 0.9 / len(plan)
        yield progress(f"{arm.name}: starting the engine", start)
        settings = arm_settings(arm, length + ROOM_BEHIND_PROMPT, stock.seqs)
        settings, options = demo_options(model, settings)
        engine = Stepper(model, settings, "server", **options)
        try:
            yield progress(f"{arm.name}: warming up", start + 0.4 * share)
            _play(engine, tokenizer, length, first_number=100)  # warm-up
            yield progress(f"{arm.name}: measuring", start + 0.7 * share)
            requests = _play(engine, tokenizer, length, first_number=0)
            yield {
                "event": "arm",
                **asdict(arm),
                "resolved": asdict(engine.resolved),
                "requests": requests,
            }
        finally:
            engine.close()


def arms(sweep: list[int | str] | None, default_budget: int) -> list[Arm]:
    """Return the four arms of the demo, or one for each budget of a sweep."""
    if sweep is not None:
        return [
            Arm("off", chunked=False) if budget == "off" else Arm(f"{budget:,}", int(budget))
            for budget in sweep
        ]
    small = max(default_budget // 4, 64)
    cap = small // 4
    return [
        Arm("off", chunked=False),
        Arm("default"),
        Arm(f"{small:,}", small),
        Arm(f"{small:,}, cap {cap:,}", small, cap),
    ]


def arm_settings(arm: Arm, model_len: int, default_seqs: int) -> Settings:
    """Translate an arm into vLLM's arguments."""
    budget = arm.budget if arm.chunked else model_len
    return Settings(
        max_model_len=model_len,
        max_num_batched_tokens=budget,
        # vLLM refuses a budget below the number of running requests.
        max_num_seqs=min(budget, default_seqs) if budget else None,
        long_prefill_token_threshold=arm.threshold,
        enable_chunked_prefill=None if arm.chunked else False,
    )


def _play(
    engine: Stepper, tokenizer: Tokenizer, long_prompt: int, first_number: int
) -> list[dict[str, Any]]:
    number = first_number
    arrivals: dict[str, float] = {}
    times: dict[str, list[float]] = {}

    def send(kind: str, output: int) -> None:
        nonlocal number
        for index in range(CROWD[kind]):
            tokens = long_prompt if kind == LONG else SMALL_PROMPT
            request_id = f"{kind}{number}.{index}"
            times[request_id] = []
            arrivals[request_id] = engine.add(
                request_id, prompt_ids(tokenizer, number, tokens), output
            )
            number += 1

    def step() -> None:
        for token in engine.step():
            times[token.request_id].append(token.seconds)

    send(EARLY, STREAMING_OUTPUT)
    while min(len(seen) for seen in times.values()) < HEAD_START:
        step()
    send(LONG, OTHER_OUTPUT)
    send(LATE, OTHER_OUTPUT)
    while engine.busy:
        step()
    return [
        {
            "kind": request_id.rstrip("0123456789."),
            "prompt_tokens": sum(engine.prefill_chunks(request_id)),
            "chunks": engine.prefill_chunks(request_id),
            "arrival": arrivals[request_id],
            "tokens": seen,
        }
        for request_id, seen in times.items()
    ]
