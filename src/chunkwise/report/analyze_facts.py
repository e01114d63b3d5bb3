"""A profile as plain facts and as sentences.

They are made once, here, and `--json`, the terminal and the page show the same
ones. Invariant: every figure that rests on an estimate, a sketch or a sample
says so where it appears.
"""

from collections.abc import Sequence
from typing import Any

from chunkwise.verdict import CANNOT_KNOW, Verdict
from chunkwise.workload.analysis import Analysis
from chunkwise.workload.arrivals import WINDOWS, ArrivalSummary
from chunkwise.workload.lengths import EDGES, THRESHOLDS, LengthSummary
from chunkwise.workload.prefix import PrefixSummary
from chunkwise.workload.profile import DatasetProfile, Profile

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
SPARKS = "▁▂▃▄▅▆▇█"


def facts(analysis: Analysis, model: str) -> dict[str, Any]:
    """Return everything as plain data, for `--json`."""
    profile = analysis.profile
    overall = profile.overall()
    return {
        "datasets": len(profile.datasets),
        "requests": overall.requests,
        "estimated": overall.estimated,
        "mean_of_longest": profile.mean_of_longest,
        "overall": {
            **_dataset(overall, model),
            "datasets_above": {str(t): profile.datasets_above(t) for t in THRESHOLDS},
            "datasets_above_8192_characters": datasets_long(profile),
        },
        "per_dataset": [_dataset(item, model) for item in profile.datasets],
        "skipped": [{"name": name, "reason": reason} for name, reason in analysis.skipped],
        "cannot_know": CANNOT_KNOW,
    }


def headline(profile: Profile, overall: DatasetProfile) -> str:
    """Say what was read, in a sentence."""
    datasets = len(profile.datasets)
    what = f"{datasets:,} datasets" if datasets > 1 else overall.name
    longest = f"longest prompt {overall.prompt.largest:,} tokens"
    if overall.longest_characters is not None:
        longest += f", {overall.longest_characters:,} characters"
    if datasets > 1:
        longest += f"; mean of the datasets' longest {profile.mean_of_longest:,.0f} tokens"
    return f"{what} ({overall.layout}), {overall.requests:,} requests; {longest}."


def verdict_lines(verdict: Verdict, model: str) -> list[str]:
    """Say the verdict, its reason, its settings and its limits."""
    threshold = "" if verdict.threshold is None else f", threshold {verdict.threshold:,} tokens"
    args = verdict.settings.to_args()
    return [
        f"First verdict: {verdict.name}{threshold}; {verdict.chunking_rate:.1%} of prompts take "
        f"more than one step.",
        verdict.reason,
        f"Settings: {verdict.settings.to_command(model)}"
        + ("" if args else "  (vLLM's defaults: nothing to change)"),
        CANNOT_KNOW,
    ]


def arrival_sentence(arrivals: ArrivalSummary, several: bool) -> str:
    """Say how requests arrive."""
    if arrivals.rate is None:
        return "Arrivals: all at once."
    peaks = [
        f"{ratio:.1f} over {window} s"
        for window in WINDOWS
        if (ratio := arrivals.peak_to_mean(window)) is not None
    ]
    text = f"Arrivals: {arrivals.rate:,.2f} requests/s over {arrivals.seconds:,.0f} s"
    if peaks:
        text += f"; peak to mean {', '.join(peaks)}"
    if (variation := arrivals.variation) is not None:
        text += f"; coefficient of variation {variation:.2f} (1 is random, more is bursty)"
    return text + (". Files are taken one after another." if several else ".")


def prefix_sentence(profile: Profile, prefix: PrefixSummary, estimated: bool) -> str:
    """Say how much was seen before, and how well it is known."""
    known = sum(item.prefix is not None for item in profile.datasets)
    least = "At least " if prefix.lower_bound else ""
    blocks = "blocks of several sizes"
    if prefix.block_size is not None:
        blocks = f"blocks of {prefix.block_size:,} tokens"
    text = (
        f"{least}{prefix.seen_share:.1%} of prompt tokens and {prefix.seen_blocks_share:.1%} of "
        f"blocks were seen before ({blocks}"
    )
    if estimated:
        text += ", estimated from characters"
    if prefix.sampled < 1:
        text += f"; from {prefix.sampled:.1%} of blocks, ±{prefix.error:.2%}"
    text += ")."
    if prefix.lower_bound:
        text += " Reuse across files is not counted."
    if known < len(profile.datasets):
        text += f" Known for {known} of {len(profile.datasets)} datasets."
    if prefix.curve_sampled < 1:
        text += f" The curve follows {prefix.curve_sampled:.2%} of blocks."
    return text


def curve_points(prefix: PrefixSummary, most: int | None = None) -> list[tuple[int, float]]:
    """Return cache sizes in tokens with the share found, where the curve moves."""
    points = [(size, prefix.share_with(size)) for size in sorted(prefix.curve)]
    while len(points) > 1 and points[0][1] == points[1][1]:
        points.pop(0)
    if most is not None and len(points) > most:
        step = -(-len(points) // most)
        points = points[::-1][::step][::-1]
    return points


def bins(summary: LengthSummary) -> list[tuple[int, int, int]]:
    """Return the histogram as (from, up to, requests), from the first to the last used bin."""
    used = sorted(summary.histogram)
    if not used:
        return []
    spread = range(used[0], used[-1] + 1)
    return [(EDGES[i], EDGES[i + 1] - 1, summary.histogram.get(i, 0)) for i in spread]


def spark(counts: Sequence[int]) -> str:
    """Draw counts as a line of small bars; what is there at all is never invisible."""
    most = max(counts, default=0)
    return "".join(" " if not n else SPARKS[max(0, -(-n * 8 // most) - 1)] for n in counts)


def marked(estimated: bool, mark: str = " (estimated)") -> str:
    """Return the mark of a figure that rests on an estimate, or nothing."""
    return mark if estimated else ""


def verdict_word(item: DatasetProfile) -> str:
    """Return the verdict and its threshold in two words."""
    verdict = item.verdict()
    return f"{verdict.name} {verdict.threshold:,}" if verdict.threshold else verdict.name


def _dataset(item: DatasetProfile, model: str) -> dict[str, Any]:
    verdict = item.verdict()
    return {
        "name": item.name,
        "layout": item.layout,
        "requests": item.requests,
        "estimated": item.estimated,
        "prompt": _lengths(item.prompt),
        "output": {**_lengths(item.output), "kinds": item.output_kinds},
        "longest_characters": item.longest_characters,
        "above_8192_characters": item.over_long_characters / max(1, item.requests),
        "classes": item.classes,
        "prefix": None if item.prefix is None else _prefix(item.prefix),
        "arrivals": None if item.arrivals is None else _arrivals(item.arrivals),
        "verdict": {
            "name": verdict.name,
            "threshold": verdict.threshold,
            "chunking_rate": verdict.chunking_rate,
            "reason": verdict.reason,
            "settings": verdict.settings.to_llm(),
            "command": verdict.settings.to_command(model),
        },
        "notes": list(item.notes),
    }


def _lengths(summary: LengthSummary) -> dict[str, Any]:
    return {
        "count": summary.count,
        "total": summary.total,
        "mean": summary.mean,
        **{name: summary.quantile(q) for name, q in QUANTILES.items()},
        "max": summary.largest,
        "exact": summary.exact,
        "rank_error": summary.rank_error,
        "above": {
            str(t): {
                "requests": count / max(1, summary.count),
                "tokens": tokens / max(1, summary.total),
            }
            for t, (count, tokens) in sorted(summary.above.items())
        },
        "histogram": [{"from": a, "to": b, "requests": n} for a, b, n in bins(summary) if n],
    }


def _prefix(prefix: PrefixSummary) -> dict[str, Any]:
    kept = prefix.model_dump(exclude={"curve"})
    shares = {"seen_share": prefix.seen_share, "seen_blocks_share": prefix.seen_blocks_share}
    curve = [{"cache_tokens": size, "share": share} for size, share in curve_points(prefix)]
    return {**kept, **shares, "curve": curve}


def _arrivals(arrivals: ArrivalSummary) -> dict[str, Any]:
    return {
        "seconds": arrivals.seconds,
        "rate": arrivals.rate,
        "variation": arrivals.variation,
        "peak_to_mean": {str(window): arrivals.peak_to_mean(window) for window in WINDOWS},
        "bin_seconds": arrivals.bin_seconds,
        "bins": arrivals.bins,
    }


def datasets_long(profile: Profile) -> float:
    """Return the share of datasets with a prompt over `LONG_CHARACTERS`."""
    return sum(d.over_long_characters > 0 for d in profile.datasets) / len(profile.datasets)
