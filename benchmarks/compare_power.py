"""Does `chunkwise compare` cry wolf, and does it see one? On recorded real latencies.

Every comparison is drawn from `results/compare-recorded.jsonl`: stretches of traffic that
three equal servers played on the CPU engine (`compare_record.py`). A run is four stretches,
one after another (96 requests); which server's recording of a stretch plays the baseline,
its twin and the arm is drawn anew for each. Left so, any claim is a false one. Planted:
every wait of the arm's requests is 15% longer. Lasting: each server is slower or faster for
good by an amount of its own, drawn with a standard deviation of 2%, which rounds do not
average out. Rounds go on by the rule that the command has.

The second table is why the interval is made as it is: how often a 95% interval for the
mean of a few rounds holds it, by the ways that one could make it.

Usage: .venv/bin/python benchmarks/compare_power.py [comparisons] [file]
"""

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

from chunkwise.lab import runs as files
from chunkwise.lab.runs import Run
from chunkwise.lab.statistics import Comparison, compare, interval
from chunkwise.measured import Measured

RESULTS = Path(__file__).parent / "results"
RECORDED = RESULTS / "compare-recorded.jsonl"
RULE = {"least_rounds": 5, "most_rounds": 12, "precision": 0.05, "seconds": None}  # the command's
ROLES = ("default", "default (twin)", "arm")
SLOWER, LASTING = 1.15, 0.02
STRETCHES, APART = 4, 30.0  # of a run; seconds from one to the next
DRAWS = 500


def main(comparisons: int, file: Path) -> None:
    begin = time.monotonic()
    _, recorded = files.read(file)
    lines = ["$ python benchmarks/compare_power.py", ""]
    for said, slower, lasting in (
        ("equal servers", 1.0, 0.0),
        ("equal servers, lasting differences", 1.0, LASTING),
        ("one 15% slower", SLOWER, 0.0),
        ("one 15% slower, lasting differences", SLOWER, LASTING),
    ):
        found = [simulated(recorded, seed, slower, lasting) for seed in range(comparisons)]
        claiming = sum(bool(claims(one)) for one in found)
        line = f"{said + ':':<37} {claiming:>3} of {comparisons} claim a difference"
        if slower > 1:
            line += f", {sum(claims(one) == {'worse'} for one in found)} the right one"
        lines.append(f"{line}; rounds {rounds(found)}")
    lines += ["", *coverage(recorded), "", f"(took {time.monotonic() - begin:.0f}s)", ""]
    (RESULTS / "compare-power.txt").write_text("\n".join(lines))
    print("\n".join(lines))


def simulated(
    recorded: Sequence[Run], seed: int, slower: float = 1.0, lasting: float = 0.0
) -> Comparison:
    """One comparison with the rule of the command, on recorded rounds."""
    rng = np.random.default_rng(seed)
    pace = np.exp(rng.normal(0, lasting, 3)) * (1, 1, slower)
    asked = {
        "baseline": ROLES[0],
        "twin": ROLES[1],
        "arms": {name: {} for name in ROLES},
        "promise": None,
        "rule": RULE,
    }
    stretches = by_stretch(recorded)
    seen: list[Run] = []
    for number in range(RULE["most_rounds"]):
        drawn = [
            [stretches[one][server] for server in rng.permutation(3)]
            for one in rng.integers(len(stretches), size=STRETCHES)
        ]
        for role, name in enumerate(ROLES):
            measured = joined([slowed(three[role], pace[role]) for three in drawn])
            seen.append(Run(name, number, role, measured, np.zeros(len(measured))))
        if number + 1 >= RULE["least_rounds"]:
            found = compare(asked, seen)
            if found.narrow_enough:
                break
    return found


def by_stretch(recorded: Sequence[Run]) -> list[list[Measured]]:
    """What the three servers made of each stretch."""
    found: dict[int, list[Measured]] = {}
    for run in recorded:
        found.setdefault(run.round, []).append(run.measured)
    return list(found.values())


def joined(parts: Sequence[Measured]) -> Measured:
    """One stretch after another."""
    starts = [APART * number for number in range(len(parts))]
    both = list(zip(parts, starts, strict=True))
    return Measured(
        np.concatenate([part.arrival + start for part, start in both]),
        np.concatenate([part.prompt_tokens for part in parts]),
        np.concatenate([part.token_counts for part in parts]),
        np.concatenate([part.token_times + start for part, start in both]),
    )


def slowed(run: Measured, slower: float) -> Measured:
    """The same requests, each of whose waits is longer."""
    arrival = np.repeat(run.arrival, run.token_counts)
    return replace(run, token_times=arrival + slower * (run.token_times - arrival))


def claims(found: Comparison) -> set[str]:
    return {effect.verdict for effect in found.effects} & {"better", "worse"}


def rounds(found: Sequence[Comparison]) -> str:
    counts = [one.rounds for one in found]
    return f"{min(counts)} to {max(counts)}"


# --- how often an interval holds the truth ----------------------------------------


def coverage(recorded: Sequence[Run]) -> Iterator[str]:
    rng = np.random.default_rng(0)
    ways: dict[str, Callable[[np.ndarray], tuple[float, float]]] = {
        "percentile": lambda d: scipys(d, "percentile"),
        "BCa": lambda d: scipys(d, "BCa"),
        "Student's t": students,
        "ours": interval,
    }
    noise = real_differences(recorded)
    sources = {
        "normal": lambda n: rng.normal(size=n),
        "skewed": lambda n: rng.gamma(1.0, size=n) - 1.0,
        "recorded": lambda n: rng.choice(noise, n),
    }
    yield f"{'a 95% interval holds the truth':<34}" + "".join(f"{way:>13}" for way in ways)
    for name, draw in sources.items():
        for count in (5, 8, 12):
            samples = [draw(count) for _ in range(DRAWS)]
            held = [
                np.mean([low <= 0 <= high for low, high in map(way, samples)])
                for way in ways.values()
            ]
            yield f"{f'{name} differences, {count} rounds':<34}" + "".join(
                f"{share:>13.0%}" for share in held
            )


def real_differences(recorded: Sequence[Run]) -> np.ndarray:
    """Log ratios of the mean end to end of equal servers on the same stretch, around 0."""
    logs = [[np.log(m.end_to_end.mean()) for m in three] for three in by_stretch(recorded)]
    found = np.array([a - b for one in logs for a, b in itertools.permutations(one, 2)])
    return found - found.mean()


def scipys(differences: np.ndarray, method: str) -> tuple[float, float]:
    found = stats.bootstrap(
        (differences,), np.mean, n_resamples=1999, method=method, rng=np.random.default_rng(0)
    ).confidence_interval
    return found.low, found.high


def students(differences: np.ndarray) -> tuple[float, float]:
    found = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    return found.low, found.high


if __name__ == "__main__":
    count, *file = sys.argv[1:] or ["20"]
    main(int(count), Path(file[0]) if file else RECORDED)
