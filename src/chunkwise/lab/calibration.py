"""A designed mix of steps on a real engine, to fit what a step costs (runs inside `child.py`).

Real traffic repeats a few shapes and leaves the terms entangled. Here every
block of the mix draws how many requests decode, at which contexts, and how many
prompts are read beside them; every step draws its own budget, so that chunks of
all sizes occur at all depths. Invariant: a mix is decided by its seed and the
largest step alone, so that two runs of it carry the same steps.
"""

import math
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chunkwise.engine import compat
from chunkwise.engine.stepper import Stepper
from chunkwise.errors import UserMistake
from chunkwise.lab.engines import demo_model, demo_options, progress
from chunkwise.settings import Settings

DECODES = (0, 1, 2, 4, 8, 16, 32)
PROMPTS = (1, 1, 2, 3)
DECODE_STEPS = 6
PREFILL_STEPS = 12
OUTPUT = 4096  # never reached: a block ends its requests
SMALLEST = 16
WARM_UP_BUDGET = 256
# No step of the mix should take longer than about this on a slow device.
LONGEST_STEP_SECONDS = 0.6
MOST_CONTEXT = 32_768


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large the steps of a mix may be."""

    tokens: int
    context: int
    decodes: int


def run(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Play the rounds of `spec` and report each one's steps.

    A round has a `seed` and either `seconds` or a number of `blocks`.
    """
    yield progress("Starting the engine", 0.0)
    model = demo_model(spec["model"])
    length = min(compat.resolve(model, Settings()).max_model_len, MOST_CONTEXT)
    if length < 64:
        raise UserMistake(f"{model} takes {length} tokens at most: too few to calibrate with.")
    settings, more = demo_options(
        model, Settings(max_model_len=length, enable_prefix_caching=False)
    )
    engine = Stepper(model, settings, **more)
    try:
        yield {
            "event": "engine",
            "model": model,
            "device": compat.platform_name(),
            "vllm": str(compat.installed().version),  # type: ignore[union-attr]
        }
        bounds = _warm_up(engine, length)
        for number, round_ in enumerate(spec["rounds"]):
            start = len(engine.timed_steps)
            for done in _play(engine, bounds, round_):
                yield progress(
                    f"Measuring: {len(engine.timed_steps) - start:,} steps",
                    (number + done) / len(spec["rounds"]),
                )
            yield {
                "event": "steps",
                "round": number,
                "steps": [
                    [
                        [(chunk.tokens, chunk.context) for chunk in step.chunks],
                        step.decodes,
                        step.decode_context,
                        seconds,
                        cpu,
                    ]
                    for step, seconds, cpu in engine.timed_steps[start:]
                ],
            }
    finally:
        engine.close()


def _warm_up(engine: Stepper, length: int) -> Bounds:
    """Take the first, slow steps, and find how many tokens a step may carry on this device."""
    most = min(engine.resolved.budget, length - 2)
    budget = min(WARM_UP_BUDGET, most)
    for index in range(3):
        engine.add(f"warm{index}", [index + 5] * min(2 * budget, length - 8), 4)
    engine.limit_steps(budget)
    while engine.busy:
        engine.step()
    rates = sorted(
        sum(chunk.tokens for chunk in step.chunks) / seconds
        for step, seconds, _ in engine.timed_steps
        if step.chunks
    )
    tokens = int(rates[len(rates) // 2] * LONGEST_STEP_SECONDS)
    return Bounds(max(4 * SMALLEST, min(most, tokens)), length, engine.resolved.seqs)


def _play(engine: Stepper, bounds: Bounds, round_: Mapping[str, Any]) -> Iterator[float]:
    """Play blocks until the round's end; yield how much of it is done."""
    dice = random.Random(round_["seed"])  # noqa: S311 - a design, not a secret
    start = time.monotonic()
    played = 0
    crowd: list[int] = []
    while True:
        # Every size of crowd once, in any order, before one comes again.
        crowd = crowd or dice.sample(DECODES, len(DECODES))
        _block(engine, bounds, dice, max(0, min(crowd.pop(), bounds.decodes - 4)), f"{played}")
        played += 1
        if "blocks" in round_:
            done = played / round_["blocks"]
        else:
            done = (time.monotonic() - start) / round_["seconds"]
        yield min(done, 1.0)
        if done >= 1:
            return


def _block(engine: Stepper, bounds: Bounds, dice: random.Random, decodes: int, name: str) -> None:
    """A crowd that decodes, then prompts that are read beside it in chunks of all sizes."""
    names = []

    def add(kind: str, index: int, tokens: int) -> None:
        names.append(f"{kind}{name}.{index}")
        engine.add(names[-1], [dice.randrange(5, 500) for _ in range(tokens)], OUTPUT)

    # Deep enough to tell contexts apart, small enough that reading them takes no minute.
    deepest = min(bounds.context // 4, 8 * bounds.tokens // max(1, decodes))
    for index in range(decodes):
        add("decode", index, _spread(dice, 8, max(16, deepest)))
    engine.limit_steps(bounds.tokens)
    started: set[str] = set()
    while len(started) < decodes:
        started |= {token.request_id for token in engine.step()}
    for _ in range(DECODE_STEPS if decodes else 0):
        engine.step()
    prompts = dice.choice(PROMPTS)
    longest = min(bounds.context - 64, PREFILL_STEPS * bounds.tokens // 2)
    for index in range(prompts):
        add("prompt", index, _spread(dice, min(256, longest), longest))
    waiting = set(names[decodes:])
    for _ in range(PREFILL_STEPS):
        chunk = _spread(dice, SMALLEST * prompts, bounds.tokens)
        engine.limit_steps(decodes + chunk, -(-chunk // prompts) if prompts > 1 else 0)
        waiting -= {token.request_id for token in engine.step()}
        if not waiting:
            break
    engine.abort(names)


def _spread(dice: random.Random, low: int, high: int) -> int:
    """Draw a whole number, each doubling of it as likely as the next."""
    high = max(low, high)
    return min(high, round(low * math.exp(dice.random() * math.log(high / low))))
