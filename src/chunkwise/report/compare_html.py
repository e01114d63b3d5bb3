"""A comparison as one page: claims, intervals, distributions, and a stall as it was seen."""

import json
from html import escape
from pathlib import Path

from chunkwise.durations import say
from chunkwise.lab.statistics import Comparison
from chunkwise.report.compare_facts import WORDS, change, command, floor, sentences, value
from chunkwise.report.compare_pictures import first_tokens, gaps, intervals, stall
from chunkwise.report.page import document, section, table
from chunkwise.report.page import write as write_page

READ_INTERVALS = (
    "Each point is the geometric mean of the rounds' ratios to the baseline, with its 95% "
    "interval. Filled: claimed. Open: not claimed. Grey: the noise floor, what the baseline may "
    "differ from its own twin by."
)


def write(comparison: Comparison, path: Path) -> None:
    """Write the page. Usage: `write(comparison, Path("compare.html"))`."""
    write_page(path, page(comparison))


def page(comparison: Comparison) -> str:
    """Return the page's text."""
    said = "".join(f"<p>{escape(line)}</p>" for line in sentences(comparison))
    parts = [
        f"<h1>Against {escape(comparison.baseline)}</h1>",
        f"<p>{escape(_headline(comparison))}</p>",
        f'<div class="verdict">{said}</div>',
    ]
    if (picture := stall(comparison)) is not None:
        height = f"{8 + 11 * (1 + len(comparison.arms))}rem"
        parts.append(section("A stall as it was seen", picture, _stall_text(comparison), height))
    height = f"{8 + 2.2 * len(comparison.metrics)}rem"
    parts += [
        section("Intervals", intervals(comparison), _paragraph(READ_INTERVALS), height),
        *(_arm(comparison, arm) for arm in comparison.arms),
        section("First tokens", first_tokens(comparison), _paragraph("All rounds together.")),
        section("Gaps", gaps(comparison), _paragraph("All rounds together.")),
        _runs(comparison),
        _asked(comparison),
    ]
    return document(f"Against {comparison.baseline}", parts, "compare")


def _headline(comparison: Comparison) -> str:
    runs = len(comparison.runs)
    requests = sum(one.requests for one in comparison.conditions)
    rule = comparison.asked["rule"]
    return (
        f"{comparison.rounds} rounds, {runs} runs, {requests:,} requests. Rule: at least "
        f"{rule['least_rounds']} and at most {rule['most_rounds']} rounds, until every headline "
        f"interval is within ±{rule['precision']:.0%}."
    )


def _stall_text(comparison: Comparison) -> str:
    return _paragraph(
        f"The worst gap of {comparison.baseline}, and the same moment of the same round in every "
        f"arm: each mark is a token that somebody got; the red stretch is the longest wait."
    )


def _arm(comparison: Comparison, arm: str) -> str:
    rows = [
        [
            effect.metric.label,
            value(effect.metric, effect.baseline_value),
            value(effect.metric, effect.value),
            change(effect),
            floor(effect),
            f"{effect.corrected_p:.3f}",
            WORDS[effect.verdict],
        ]
        for effect in comparison.of(arm)
    ]
    columns = ["", comparison.baseline, arm, "change (95%)", "noise floor", "p (Holm)", "verdict"]
    return f"<h2>{escape(arm)}</h2>{table(columns, rows)}"


def _runs(comparison: Comparison) -> str:
    rows = [
        [
            one.arm,
            f"{one.runs}",
            f"{one.requests:,}",
            f"{one.failed:,}",
            say(one.lag_p99),
            f"{len(one.lagged)}",
        ]
        for one in comparison.conditions
    ]
    columns = ["arm", "runs", "requests", "failed", "client late by (P99)", "runs marked late"]
    return f"<h2>The runs</h2>{table(columns, rows)}"


def _asked(comparison: Comparison) -> str:
    hidden = ("schema", "command")
    asked = {name: item for name, item in comparison.asked.items() if name not in hidden}
    rest = escape(json.dumps(asked, indent=2, default=str))
    return (
        f"<h2>To repeat it</h2><p><code>{escape(command(comparison))}</code></p>"
        f'<details><summary>Arms, load, rule, environment</summary><pre class="small">{rest}</pre>'
        "</details>"
    )


def _paragraph(text: str) -> str:
    return f'<p class="small">{escape(text)}</p>'
