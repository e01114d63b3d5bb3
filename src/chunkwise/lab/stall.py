"""The worst stall of a comparison, and the same moment in every arm.

Those who were streaming when a long prompt came in, token by token. Invariant:
all arms show the same requests of the same round over the same stretch of time,
chosen by the baseline's worst gap, so that no arm shows its best moment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chunkwise.lab.runs import Run
from chunkwise.measured import Floats, Measured

MOST_ROWS = 24
AROUND = 0.35  # of the long prompt's wait, shown before and after it
LEAST_AROUND = 0.5  # seconds


@dataclass(frozen=True)
class Moment:
    """What one arm did in the stretch; times in seconds since the run began."""

    arm: str
    begin: float
    end: float
    rows: tuple[Floats, ...]  # the tokens of each request that was streaming
    prompt_tokens: int  # the long prompt's
    arrival: float
    first_token: float
    gap: tuple[float, float]  # the longest gap that ended in the stretch


def moments(runs: Sequence[Run], baseline: str, arms: Sequence[str]) -> tuple[Moment, ...]:
    """Return the stretch around the long prompt behind the baseline's worst gap, for each arm.

    Usage: `moments(comparison.runs, "default", ["default", "off"])`; empty where no run has a gap.
    """
    wanted = {arm: {run.round: run.measured for run in runs if run.arm == arm} for arm in arms}
    wanted = {arm: found for arm, found in wanted.items() if found}
    if baseline not in wanted:
        return ()
    shared = set.intersection(*(set(found) for found in wanted.values()))
    worst = [(m.gaps.max(), n) for n, m in wanted[baseline].items() if n in shared and len(m.gaps)]
    if not worst:
        return ()
    number = max(worst)[1]
    chosen = {arm: found[number] for arm, found in wanted.items()}
    worst_run = chosen[baseline]
    gap = _worst_gap(worst_run)
    long = _behind(worst_run, gap)
    arrival, tokens = _since_start(worst_run, long), int(worst_run.prompt_tokens[long])
    same = {arm: _same_request(m, arrival, tokens) for arm, m in chosen.items()}
    firsts = [arrival + float(m.ttft[same[arm]]) for arm, m in chosen.items()]
    begin, end = min(arrival, gap[0]), float(np.nanmax([gap[1], *firsts]))
    around = max(LEAST_AROUND, AROUND * (end - begin))
    begin, end = max(0.0, begin - around), end + around
    return tuple(_moment(arm, m, same[arm], begin, end) for arm, m in chosen.items())


def _worst_gap(run: Measured, begin: float = 0.0, end: float = np.inf) -> tuple[float, float]:
    """Return start and end of the longest gap that ended in a stretch, since the run began."""
    ends = run.gap_ends - run.arrival.min()
    within = (ends >= begin) & (ends <= end)
    if not within.any():
        return begin, begin
    worst = int(np.where(within, run.gaps, -1.0).argmax())
    return float(ends[worst] - run.gaps[worst]), float(ends[worst])


def _behind(run: Measured, gap: tuple[float, float]) -> int:
    """Return the longest prompt among those that were being read during a gap."""
    came = run.arrival - run.arrival.min()
    read = (came < gap[1]) & (came + run.ttft > gap[0])  # NaN: never read
    return int(np.where(read, run.prompt_tokens, -1).argmax() if read.any() else came.argmin())


def _same_request(run: Measured, arrival: float, tokens: int) -> int:
    """Return the request with this prompt that came nearest to this moment."""
    away = np.abs(run.arrival - run.arrival.min() - arrival)
    same = run.prompt_tokens == tokens
    return int(np.where(same, away, away + 1e9).argmin())


def _moment(arm: str, run: Measured, long: int, begin: float, end: float) -> Moment:
    start = float(run.arrival.min())
    ends = np.cumsum(run.token_counts)
    rows: list[Floats] = []
    for index in np.argsort(run.arrival, kind="stable"):
        times = run.token_times[ends[index] - run.token_counts[index] : ends[index]] - start
        inside = times[(times >= begin) & (times <= end)]
        if len(inside) and index != long and len(rows) < MOST_ROWS:
            rows.append(inside)
    arrival = _since_start(run, long)
    first_token = arrival + float(run.ttft[long])
    tokens = int(run.prompt_tokens[long])
    gap = _worst_gap(run, begin, end)
    return Moment(arm, begin, end, tuple(rows), tokens, arrival, first_token, gap)


def _since_start(run: Measured, index: int) -> float:
    return float(run.arrival[index] - run.arrival.min())
