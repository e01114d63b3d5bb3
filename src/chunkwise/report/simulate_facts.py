"""A simulation as plain facts, made once for `--json`, the terminal and the page."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from chunkwise.measured import Floats
from chunkwise.sim.record import Simulation, Steps
from chunkwise.slo import Slo

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
KINDS = ("decode only", "mixed", "prefill only")


def facts(simulation: Simulation, machine: Mapping[str, Any], slo: Slo | None) -> dict[str, Any]:
    """Return what happened, in seconds and tokens."""
    measured, steps = simulation.measured, simulation.steps
    served = measured.only(measured.token_counts > 0)
    seconds = served.seconds
    kinds = kind_of(steps)
    took = steps.end - steps.start
    busy = float(took.sum())
    tokens = steps.prefill_tokens + steps.decodes
    return {
        "requests": len(measured),
        "served": len(served),
        "refused": [
            {"requests": count, "reason": reason}
            for reason, count in Counter(simulation.refused.values()).most_common(5)
        ],
        "seconds": seconds,
        "requests_per_second": len(served) / seconds if seconds else 0.0,
        "output_tokens_per_second": served.output_tokens_per_second,
        "prompt_tokens_per_second": int(served.prompt_tokens.sum()) / seconds if seconds else 0.0,
        "ttft": spread(served.ttft),
        "gap": spread(served.gaps),
        "time_per_output_token": spread(served.time_per_output_token),
        "end_to_end": spread(served.end_to_end),
        "goodput_share": None if slo is None else measured.goodput_share(slo),
        "promise": None if slo is None else str(slo),
        "cache_hit_share": simulation.cache_hit_share,
        "preemptions": simulation.preemptions,
        "steps": {
            "count": len(steps),
            "mean_tokens": float(tokens.mean()) if len(steps) else 0.0,
            "most_running": int(steps.running.max(initial=0)),
            "most_waiting": int(steps.waiting.max(initial=0)),
            "most_kv": float(steps.kv_use.max(initial=0.0)),
            "kinds": {
                name: {
                    "steps": int((kinds == number).sum()),
                    "time_share": float(took[kinds == number].sum()) / busy if busy else 0.0,
                    "mean_seconds": _mean(took[kinds == number]),
                }
                for number, name in enumerate(KINDS)
            },
        },
        "notes": list(simulation.notes),
        "machine": dict(machine),
    }


def kind_of(steps: Steps) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return each step's kind, an index of `KINDS`."""
    return np.where(steps.chunks == 0, 0, np.where(steps.decodes > 0, 1, 2))


def spread(values: Floats) -> dict[str, float | None]:
    """Return mean, quantiles and the largest of those that are known."""
    known = values[np.isfinite(values)]
    if not len(known):
        return {"mean": None, **dict.fromkeys(QUANTILES), "max": None}
    return {
        "mean": float(known.mean()),
        **{name: float(np.quantile(known, q)) for name, q in QUANTILES.items()},
        "max": float(known.max()),
    }


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0
