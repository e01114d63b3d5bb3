"""What a fitted cost means, as plain data and sentences for people.

Invariant: every figure is asked of the cost itself, so that what is said here is
what a scheduler with the same cost would do.
"""

from collections.abc import Sequence
from typing import Any

from chunkwise.cost.fitted import CONTEXT_TERMS, FittedCost
from chunkwise.cost.step import StepShape

CONTEXTS = (0, 4096, 32_768)
MOST_TOKENS = 16_384


def overview(cost: FittedCost, targets: Sequence[float], beside: StepShape) -> dict[str, Any]:
    """Return everything that `calibrate` shows but the steps. `beside` is what decodes anyway."""
    where, terms = cost.provenance, cost.coefficients
    return {
        "model": where.model,
        "device": where.device,
        "tensor_parallel": where.tensor_parallel,
        "pipeline_parallel": where.pipeline_parallel,
        "vllm": where.engine,
        "notes": list(where.notes),
        "unknown": list(cost.unknown),
        "seconds": {name: getattr(terms, name) for name in terms.__slots__},
        "error": {
            "steps": cost.error.steps,
            **{name: getattr(cost.error, name) for name in ("p50", "p90", "p95", "p99")},
        },
        "boundary": boundary(cost),
        "beside": {"decodes": beside.decodes, "decode_context": beside.decode_context},
        "buys": [
            {"itl": target, "chunks": [_bought(cost, beside, target, c) for c in contexts(cost)]}
            for target in targets
        ],
    }


def contexts(cost: FittedCost) -> tuple[int, ...]:
    """Return the depths that chunks are told for: one only, if context has no known price."""
    return CONTEXTS[:1] if set(CONTEXT_TERMS) & set(cost.unknown) else CONTEXTS


def boundary(cost: FittedCost) -> dict[str, float]:
    """Return what cutting a prompt once more costs.

    `alone`: nobody decodes, so that it takes a step of its own. `beside`: the
    step runs anyway, and gets a chunk.
    """
    terms = cost.coefficients
    beside = terms.prefill + terms.chunk
    return {"alone": terms.fixed + beside, "beside": beside}


def _bought(cost: FittedCost, beside: StepShape, target: float, context: int) -> dict[str, Any]:
    tokens = cost.largest_chunk(beside, target, context, MOST_TOKENS)
    seen = cost.covers(beside.with_chunk(tokens, context))
    return {"context": context, "tokens": tokens, "seen": seen}


def sentences(content: dict[str, Any]) -> list[str]:
    """Say the fit in words."""
    seconds = content["seconds"]
    unknown = set(content["unknown"])

    def ms(name: str, times: float = 1) -> str:
        return f"{seconds[name] * times * 1e3:,.2f} ms"

    said = [
        f"Every step takes {ms('fixed')}; one with any prefill {ms('prefill')} more, and "
        f"{ms('chunk')} for each chunk.",
        f"1,000 prefill tokens take {ms('token', 1000)}, ten decodes {ms('decode', 10)}.",
    ]
    if unknown & set(CONTEXT_TERMS):
        said.append(
            "What context costs is unknown here: chunks deep in a prompt, and decodes of long "
            "contexts, take longer than this says."
        )
    else:
        said.append(
            f"Context costs too: each 1,000 tokens already read add {ms('pair', 1e6)} to a chunk "
            f"of 1,000, and {ms('decode_context', 10_000)} to ten decodes."
        )
    boundary_ = content["boundary"]
    said.append(
        f"One more chunk boundary costs {boundary_['beside'] * 1e3:,.2f} ms beside decodes, "
        f"{boundary_['alone'] * 1e3:,.2f} ms where nobody decodes."
    )
    error = content["error"]
    said.append(
        f"Off by {error['p50']:.1%} at the median, {error['p95']:.1%} at the 95th percentile and "
        f"{error['p99']:.1%} at the 99th, over {error['steps']:,} steps."
    )
    return said + [f"Keep in mind: {note}." for note in content["notes"]]
