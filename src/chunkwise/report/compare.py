"""A comparison as tables and sentences for the terminal, and as JSON."""

from math import isfinite
from typing import Any

from chunkwise.durations import say
from chunkwise.lab.statistics import Comparison, Condition, Effect, lagged
from chunkwise.measured import Floats, quantile
from chunkwise.report.compare_facts import WORDS, change, command, floor, sentences, value
from chunkwise.report.terminal import print_lines, print_table

SCHEMA = "chunkwise.compare/1"
QUANTILES = (0.5, 0.9, 0.99)


def show(comparison: Comparison) -> None:
    """Print a table for each arm, how the runs went, and what may be claimed."""
    for arm in comparison.arms:
        print_table(
            f"{arm} against {comparison.baseline}, {comparison.rounds} rounds",
            ["", comparison.baseline, arm, "change (95%)", "noise floor", "verdict"],
            [
                [
                    effect.metric.label,
                    value(effect.metric, effect.baseline_value),
                    value(effect.metric, effect.value),
                    change(effect),
                    floor(effect),
                    WORDS[effect.verdict],
                ]
                for effect in comparison.of(arm)
            ],
            text={0, 5},
        )
    print_table(
        "The runs",
        ["arm", "runs", "requests", "failed", "client late by (P99)", "runs marked late"],
        [
            [
                one.arm,
                f"{one.runs}",
                f"{one.requests:,}",
                f"{one.failed:,}",
                say(one.lag_p99),
                f"{len(one.lagged)}",
            ]
            for one in comparison.conditions
        ],
    )
    print_lines(["", *sentences(comparison), "", f"To repeat it: {command(comparison)}"])


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return everything that was asked, measured and found; no text of a prompt."""
    return {
        "schema": SCHEMA,
        "asked": {name: item for name, item in comparison.asked.items() if name != "schema"},
        "rounds": comparison.rounds,
        "narrow_enough": comparison.narrow_enough,
        "effects": [_effect(effect) for effect in comparison.effects],
        "twin": [_effect(effect) for effect in comparison.twin],
        "conditions": [_condition(one) for one in comparison.conditions],
        "sentences": sentences(comparison),
        "runs": [
            {
                "arm": run.arm,
                "round": run.round,
                "place": run.place,
                "requests": len(run.measured),
                "failed": run.failed,
                "lagged": lagged(run),
                "metrics": {m.key: _number(m.of(run)) for m in comparison.metrics},
                # Of the requests of this run alone, as if they were independent.
                "ttft": {f"p{100 * q:g}": _quantile(run.measured.ttft, q) for q in QUANTILES},
                "gaps": {f"p{100 * q:g}": _quantile(run.measured.gaps, q) for q in QUANTILES},
            }
            for run in comparison.runs
        ],
    }


def _effect(effect: Effect) -> dict[str, Any]:
    middle, low, high = effect.shown
    return {
        "arm": effect.arm,
        "metric": effect.metric.key,
        "label": effect.metric.label,
        "unit": effect.metric.unit,
        "headline": effect.metric.headline,
        "rounds": effect.rounds,
        "baseline": _number(effect.baseline_value),
        "value": _number(effect.value),
        "compared_by": "ratio" if effect.metric.as_ratio else "difference",
        "change": _number(middle),
        "low": _number(low),
        "high": _number(high),
        "noise_floor": _number(effect.floor),
        "p": _number(effect.p),
        "corrected_p": _number(effect.corrected_p),
        "verdict": effect.verdict,
    }


def _condition(one: Condition) -> dict[str, Any]:
    return {
        "arm": one.arm,
        "runs": one.runs,
        "requests": one.requests,
        "failed": one.failed,
        "lag_p99": one.lag_p99,
        "lagged_rounds": list(one.lagged),
    }


def _quantile(values: Floats, q: float) -> dict[str, float | None]:
    found = quantile(values, q)
    ends = {"value": found.value, "low": found.low, "high": found.high}
    return {name: _number(number) for name, number in ends.items()}


def _number(number: float) -> float | None:
    """JSON has no infinity and no NaN."""
    return number if isfinite(number) else None
