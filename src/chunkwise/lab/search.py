"""`best-static`: a small measured search for one fixed budget and threshold.

Successive halving: all candidates play a short round, the better half plays one
twice as long, and so on, always the same requests for all who are left. Rule,
stated beforehand: with a promise, the largest goodput share wins; without, the
shortest P99 gap among those whose output is within 5% of the fastest. Ties under a
promise go to less time lost in stalls, then to the shorter P99 gap.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from chunkwise.lab.arms import Arm, Machine, static
from chunkwise.measured import Measured
from chunkwise.slo import Slo

NAME = "best-static"
THROUGHPUT_KEPT = 0.95
FIRST_SHARE = 4  # of a round's requests: the first stage plays a fourth


def candidates(machine: Machine) -> list[Arm]:
    """Return fixed settings around the server's default: (budget, threshold)."""
    budget = min(machine.budget, machine.context)
    pairs = [
        (budget // 4, 0),
        (budget // 4, budget // 16),
        (budget // 2, budget // 8),
        (budget, budget // 4),
    ]
    return [static(size, cap, machine) for size, cap in pairs]


def best_static(
    field: Sequence[Arm],
    requests: int,
    slo: Slo | None,
    play: Callable[[Arm, int], Measured],
    drop: Callable[[Arm], None],
    in_time: Callable[[], bool],
) -> Arm:
    """Return the winner under the name `best-static`, with the search's figures.

    When the time is over, who was not tried is out, and the best so far has won.
    """
    left, share = list(field), FIRST_SHARE
    figures: list[dict[str, object]] = []
    while len(left) > 1 and (not figures or in_time()):
        n = max(8, requests // share)
        seen: dict[str, Measured] = {}
        for arm in left:
            if not seen or in_time():
                seen[arm.said] = play(arm, n)
            else:
                drop(arm)
        left = [arm for arm in left if arm.said in seen]
        fastest = max(one.output_tokens_per_second for one in seen.values())
        left.sort(key=lambda arm: score(seen[arm.said], slo, fastest), reverse=True)
        figures += [_figures(arm, n, seen[arm.said], slo) for arm in left]
        half = max(1, len(left) // 2)
        for loser in left[half:]:
            drop(loser)
        left = left[:half]
        share = max(1, share // 2)
    for arm in left:
        drop(arm)
    return replace(left[0], name=NAME, said=NAME, search=tuple(figures))


def score(run: Measured, slo: Slo | None, fastest: float) -> tuple[float, ...]:
    """Return what is to be large, the most important first."""
    gap = _p99(run)
    if slo is not None:
        return (run.goodput_share(slo), -float(run.stall_seconds(slo.itl).sum()), -gap)
    kept = run.output_tokens_per_second >= THROUGHPUT_KEPT * fastest
    return (float(kept), -gap)


def _figures(arm: Arm, n: int, run: Measured, slo: Slo | None) -> dict[str, object]:
    return {
        "settings": arm.said,
        "requests": n,
        "goodput_share": None if slo is None else run.goodput_share(slo),
        "gap_p99": _p99(run),
        "output_tokens_per_second": run.output_tokens_per_second,
    }


def _p99(run: Measured) -> float:
    return float(np.quantile(run.gaps, 0.99)) if len(run.gaps) else 0.0
