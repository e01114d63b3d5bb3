"""A comparison in words: the sentences that terminal, page and JSON share.

Invariant: a sentence says "better" or "worse" only where the statistics claim it;
every figure in a sentence stands beside its interval.
"""

import shlex
from collections.abc import Sequence
from math import exp, isfinite

from chunkwise.durations import say
from chunkwise.lab.metrics import Metric
from chunkwise.lab.statistics import Comparison, Effect

WORDS = {
    "better": "better",
    "worse": "worse",
    "alike": "no difference",
    "unclear": "too noisy to tell",
    "failed": "not comparable",
}


def value(metric: Metric, number: float) -> str:
    """Write a metric's value with its unit."""
    if not isfinite(number):
        return "–"
    if metric.unit == "share":
        return f"{number:.1%}"
    return say(number) if metric.unit == "seconds" else f"{number:,.1f}/s"


def change(effect: Effect) -> str:
    """Write the estimate with its interval: `0.62× (0.55–0.70)`."""
    middle, low, high = effect.shown
    if not isfinite(middle):
        return "–"
    if not effect.metric.as_ratio:
        points = f"{100 * middle:+.1f} points"
        return f"{points} ({100 * low:+.1f} to {100 * high:+.1f})" if isfinite(high) else points
    return f"{middle:.2f}× ({low:.2f}–{high:.2f})" if isfinite(high) else f"{middle:.2f}×"


def floor(effect: Effect) -> str:
    """Write the noise floor: what the baseline may differ from itself by."""
    if not isfinite(effect.floor):
        return "unknown"
    if not effect.metric.as_ratio:
        return f"±{100 * effect.floor:.1f} points"
    return f"±{100 * (exp(effect.floor) - 1):.0f}%"


def command(comparison: Comparison) -> str:
    """Return the command line to repeat it, to paste into a shell."""
    asked = comparison.asked.get("command") or ()
    return asked if isinstance(asked, str) else shlex.join(map(str, asked))


def sentences(comparison: Comparison) -> list[str]:
    """Say what may be claimed, arm after arm, and what must be known to believe it."""
    lines = []
    for arm in comparison.arms:
        lines += [f"{arm}: {line}" for line in _of_arm(comparison.of(arm))]
    return lines + _cautions(comparison)


def _of_arm(effects: Sequence[Effect]) -> list[str]:
    by_verdict = {word: [e for e in effects if e.verdict == word] for word in WORDS}
    if len(by_verdict["failed"]) == len(effects):
        return ["not comparable: requests failed (see below)."]
    lines = [
        f"{effect.metric.label} is {_against(effect)}: {effect.verdict}."
        for word in ("better", "worse")
        for effect in by_verdict[word]
    ]
    if not by_verdict["better"]:
        if by_verdict["worse"] or len(by_verdict["alike"]) >= len(by_verdict["unclear"]):
            lines.insert(0, "no benefit: nothing got better by more than the noise.")
        else:
            lines.insert(0, "too noisy to tell; more rounds or a quieter machine would help.")
    if by_verdict["alike"]:
        lines.append(f"no difference in {_list(by_verdict['alike'])}.")
    if by_verdict["unclear"]:
        lines.append(f"too noisy to tell: {_labels(by_verdict['unclear'])}.")
    return lines


def _against(effect: Effect) -> str:
    if effect.metric.as_ratio:
        middle, low, high = effect.shown
        return f"{middle:.2f}× the baseline's ({low:.2f}–{high:.2f})"
    values = (value(effect.metric, effect.value), value(effect.metric, effect.baseline_value))
    return f"{values[0]} against the baseline's {values[1]}, {change(effect)}"


def _list(effects: Sequence[Effect]) -> str:
    return ", ".join(f"{effect.metric.label} {change(effect)}" for effect in effects)


def _labels(effects: Sequence[Effect]) -> str:
    return ", ".join(effect.metric.label for effect in effects)


def _cautions(comparison: Comparison) -> list[str]:
    """Say what went wrong with the runs: few rounds, failures, a late client, no rest."""
    lines = []
    least = comparison.asked["rule"].get("least_rounds") or 0
    if comparison.rounds < least:
        lines.append(
            f"Only {comparison.rounds} of at least {least} rounds are complete: go on with "
            f"--resume before you believe any of it."
        )
    for one in comparison.conditions:
        if one.failed:
            lines.append(f"{one.arm}: {one.failed:,} of {one.requests:,} requests failed.")
        if one.lagged:
            lines.append(
                f"{one.arm}: the client sent late in {len(one.lagged)} of {one.runs} runs (up to "
                f"{say(one.lag_p99)}): the load was not the one asked for."
            )
    restless = [effect for effect in comparison.twin if effect.corrected_p < 0.05]
    if restless:
        lines.append(
            f"The baseline differs from its own twin in {_list(restless)}: this machine does not "
            f"treat two equal servers alike, and the noise floor is as wide as that."
        )
    return lines
