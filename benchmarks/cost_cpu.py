"""Calibrate on one run of a real engine, predict the steps of another; ten times, both models.

Beside it stands the engine's own spread: the same steps, run again, against themselves. Both
are given by the clock, which a shared machine disturbs, and in the engine's CPU seconds; and
with each run's own pace taken out, which is what a fit that follows the machine is left with.
Needs vLLM (the CPU build suffices). Usage: python benchmarks/cost_cpu.py
"""

import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np

from chunkwise.cost.fitted import TimedStep, errors, fit
from chunkwise.cost.step import Provenance, StepShape
from chunkwise.lab import models
from chunkwise.lab.child import Child

RESULTS = Path(__file__).parent / "results"
RESULT = RESULTS / "cost-cpu.txt"
REPETITIONS = 10
CALIBRATE = {"seed": 1, "blocks": 7}
PREDICT = {"seed": 2, "blocks": 4}
MEDIAN, P95 = 0.05, 0.15


def main() -> None:
    command()
    lines = ["$ python benchmarks/cost_cpu.py", ""]
    for size in sys.argv[1:] or ("30m", "130m"):
        lines += [*measure(size), ""]
        RESULT.write_text("\n".join(lines))
    print(RESULT.read_text())


def command() -> None:
    """Keep what `chunkwise calibrate` prints for the smaller model."""
    asked = ["calibrate", "--run", str(models.timing_model("30m")), "--for", "30s"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "chunkwise", *asked, "--save", f"{folder}/kept.json"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "100"},
        )
    said = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    text = f"$ chunkwise calibrate --run MODEL --for 30s\n\n{said}\n"
    (RESULTS / "cost-calibrate.txt").write_text(text.replace(asked[2], "timing-30m"))


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
        pairs = list(zip(runs[::2], runs[1::2], strict=True))
        ratios = [1 + errors(fit(known, where), other) for known, other in pairs]
        again = own_ratios(runs)
        lines.append(f"  {title}:")
        each = ", ".join(say(off(ratio)) for ratio in ratios)
        lines.append(f"    prediction, median/P95 of each repetition: {each}")
        for what, change in (("as it is", same), ("each run's own pace taken out", at_one_pace)):
            got = np.median([off(change(ratio)) for ratio in ratios], axis=0)
            own = np.median([off(change(ratio)) for ratio in again], axis=0)
            lines.append(
                f"    {what}: prediction {say(got)}, the engine against itself {say(own)}; "
                f"{verdict(got, own)}"
            )
    return lines


def verdict(got: np.ndarray, own: np.ndarray) -> str:
    told = []
    for name, value, target, floor in zip(("median", "P95"), got, (MEDIAN, P95), own, strict=True):
        under = " (under the engine's own spread)" if target < floor else ""
        told.append(f"{name} {target:.0%}{under} {'kept' if value <= target else 'missed'}")
    return ", ".join(told)


def own_ratios(runs: list[list[TimedStep]]) -> list[np.ndarray]:
    """Of the same mix, one run after the other: what no prediction can be better than."""
    return [
        np.array(
            [a.seconds / b.seconds for a, b in zip(one, other, strict=False) if a.shape == b.shape]
        )
        for first in (0, 1)
        for one, other in pairwise(runs[first::2])
    ]


def same(ratio: np.ndarray) -> np.ndarray:
    return ratio


def at_one_pace(ratio: np.ndarray) -> np.ndarray:
    return ratio / np.median(ratio)


def off(ratio: np.ndarray) -> np.ndarray:
    return np.quantile(np.abs(ratio - 1), (0.5, 0.95))


def say(pair: np.ndarray) -> str:
    return f"{pair[0]:.1%}/{pair[1]:.1%}"


def timed(step: list, clock: int) -> TimedStep:
    chunks, decodes, context = step[:3]
    shape = StepShape.of(map(tuple, chunks)).with_decodes(decodes, context)
    return TimedStep(shape, step[clock])


if __name__ == "__main__":
    main()
