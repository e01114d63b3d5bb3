"""Calibrate on one run of a real engine, predict the steps of another; ten times, both models.

Beside it stands the engine's own spread: the same steps, run again, against themselves. Both
are given by the clock, which a shared machine disturbs, and in the engine's CPU seconds.
Needs vLLM (the CPU build suffices). Usage: python benchmarks/cost_cpu.py
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

from chunkwise.cost.fitted import TimedStep, errors, fit
from chunkwise.cost.step import Provenance, StepShape
from chunkwise.lab import models
from chunkwise.lab.child import Child

RESULT = Path(__file__).parent / "results" / "cost-cpu.txt"
REPETITIONS = 10
CALIBRATE = {"seed": 1, "blocks": 7}
PREDICT = {"seed": 2, "blocks": 4}
MEDIAN, P95 = 0.05, 0.15


def main() -> None:
    lines = ["$ python benchmarks/cost_cpu.py", ""]
    for size in sys.argv[1:] or ("30m", "130m"):
        lines += [*measure(size), ""]
        RESULT.write_text("\n".join(lines))
    print(RESULT.read_text())


def measure(size: str) -> list[str]:
    spec = {"model": str(models.timing_model(size)), "rounds": [CALIBRATE, PREDICT] * REPETITIONS}
    with Child("chunkwise.lab.calibration:run", spec, keep_log=False) as child:
        engine, *rounds = child.events()
    where = Provenance("calibration", size, engine["device"], engine=engine["vllm"])
    known, other = (len(rounds[index]["steps"]) for index in (0, 1))
    lines = [
        f"Timing model {size}, vLLM {engine['vllm']}, {engine['device']}: fitted to {known:,} "
        f"steps, predicting {other:,} of another mix; medians over {REPETITIONS} repetitions"
    ]
    for title, clock in (("by the clock", 3), ("in CPU seconds of the engine", 4)):
        runs = [[timed(step, clock) for step in round_["steps"]] for round_ in rounds]
        found = [
            np.quantile(np.abs(errors(fit(known, where), other)), (0.5, 0.95))
            for known, other in zip(runs[::2], runs[1::2], strict=True)
        ]
        each = ", ".join(f"{median:.1%}/{p95:.1%}" for median, p95 in found)
        median, p95 = np.median(np.array(found), axis=0)
        spread = own_spread(runs)
        lines += [
            f"  {title}:",
            f"    prediction off by: median {median:.1%}, P95 {p95:.1%}",
            f"    the engine against itself, same steps in the next run: median {spread[0]:.1%}, "
            f"P95 {spread[1]:.1%}",
            f"    each repetition, median/P95: {each}",
        ]
        for name, got, target, floor in (
            ("median", median, MEDIAN, spread[0]),
            ("P95", p95, P95, spread[1]),
        ):
            kept = "kept" if got <= target else "missed"
            under = ", which is under the engine's own spread" if target < floor else ""
            lines.append(f"    target {name} {target:.0%}{under}: {kept}")
    return lines


def own_spread(runs: list[list[TimedStep]]) -> tuple[float, float]:
    """Of the same mix, one run after the other: what no prediction can be better than."""
    off = []
    for first in (0, 1):
        for one, other in pairwise(runs[first::2]):
            same = [
                (a.seconds, b.seconds)
                for a, b in zip(one, other, strict=False)
                if a.shape == b.shape
            ]
            off += [abs(a / b - 1) for a, b in same]
    return float(np.median(off)), float(np.quantile(off, 0.95))


def timed(step: list, clock: int) -> TimedStep:
    chunks, decodes, context = step[:3]
    shape = StepShape.of(map(tuple, chunks)).with_decodes(decodes, context)
    return TimedStep(shape, step[clock])


if __name__ == "__main__":
    main()
