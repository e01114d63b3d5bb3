"""A profile as tables and small pictures for the terminal."""

from chunkwise.report.analyze_facts import (
    QUANTILES,
    arrival_sentence,
    bins,
    curve_points,
    datasets_long,
    headline,
    marked,
    prefix_sentence,
    spark,
    verdict_lines,
    verdict_word,
)
from chunkwise.report.terminal import bar, print_lines, print_table, screen_width
from chunkwise.workload.analysis import Analysis
from chunkwise.workload.lengths import LengthSummary
from chunkwise.workload.prefix import PrefixSummary
from chunkwise.workload.profile import LONG_CHARACTERS, DatasetProfile, Profile

MOST_ROWS = 400
ROOM_FOR_SHAPES = 100


def show(analysis: Analysis, model: str) -> None:
    """Print the profile as tables and sentences."""
    profile = analysis.profile
    overall = profile.overall()
    about = " Lengths are estimates (characters ÷ 4)." if overall.estimated else ""
    print_lines([f"{headline(profile, overall)}{about}", ""])
    several = len(profile.datasets) > 1
    if several:
        _show_datasets(profile)
    _show_lengths(overall)
    _show_histogram(overall.prompt, overall.estimated)
    _show_long(profile, overall)
    if overall.prefix is not None:
        _show_prefix(profile, overall.prefix, overall.estimated)
    if overall.arrivals is not None:
        print_lines(["", arrival_sentence(overall.arrivals, several)])
    verdict = overall.verdict()
    print_lines(["", *verdict_lines(verdict, model)])
    _show_remarks(analysis)


def _show_datasets(profile: Profile) -> None:
    items = profile.datasets[:MOST_ROWS]
    # On a narrow screen the names need the room more than the shapes do.
    shapes = 1 if screen_width() >= ROOM_FOR_SHAPES else 0
    print_table(
        f"Datasets (prompt tokens{marked(any(d.estimated for d in items), ', estimated')})",
        ["dataset", "verdict", *["shape"] * shapes, "requests", "p50", "p95", "max", "seen"],
        text={0, 1, 2} if shapes else {0, 1},
        rows=[
            [
                item.name,
                verdict_word(item),
                *[spark([n for _, _, n in bins(item.prompt)])[-16:]] * shapes,
                f"{item.requests:,}",
                f"{item.prompt.quantile(0.5):,}",
                f"{item.prompt.quantile(0.95):,}",
                f"{item.prompt.largest:,}",
                "" if item.prefix is None else f"{item.prefix.seen_share:.0%}",
            ]
            for item in items
        ],
    )
    if len(profile.datasets) > MOST_ROWS:
        print_lines([f"… and {len(profile.datasets) - MOST_ROWS:,} more; --json has them all."])


def _show_remarks(analysis: Analysis) -> None:
    notes = [f"{item.name}: {note}." for item in analysis.profile.datasets for note in item.notes]
    if notes:
        print_lines(["", *notes[:5]])
    if len(notes) > 5:
        print_lines([f"… and {len(notes) - 5} more such notes; --json has them all."])
    if skipped := analysis.skipped:
        print_lines(
            [
                "",
                f"{len(skipped)} of {len(skipped) + len(analysis.profile.datasets)} files were "
                f"left out; --json has every reason. The first: {skipped[0][1]}",
            ]
        )


def _show_lengths(overall: DatasetProfile) -> None:
    rows = [("prompt" + marked(overall.estimated), overall.prompt)]
    if overall.output.count:
        rows.append((f"output ({' and '.join(overall.output_kinds)})", overall.output))
    print_table(
        "Tokens per request",
        ["", "requests", "mean", *QUANTILES, "max"],
        [
            [
                name,
                f"{summary.count:,}",
                f"{summary.mean:,.0f}",
                *(f"{summary.quantile(q):,}" for q in QUANTILES.values()),
                f"{summary.largest:,}",
            ]
            for name, summary in rows
        ],
    )
    for name, summary in rows:
        if not summary.exact:
            print_lines([f"Quantiles of {name}: rank ±{summary.rank_error:.2%} (a KLL sketch)."])


def _show_histogram(prompt: LengthSummary, estimated: bool) -> None:
    doubled: dict[int, int] = {}
    for start, _, count in bins(prompt):
        power = max(0, start.bit_length() - 1)
        doubled[power] = doubled.get(power, 0) + count
    most = max(doubled.values(), default=0)
    print_table(
        "Prompt lengths" + marked(estimated),
        ["tokens", "requests", "share", ""],
        text={0, 3},
        rows=[
            [
                f"{2**power if power else 0:,} to {2 ** (power + 1) - 1:,}",
                f"{count:,}",
                f"{count / max(1, prompt.count):.1%}",
                bar(count, most),
            ]
            for power, count in sorted(doubled.items())
        ],
    )


def _show_long(profile: Profile, overall: DatasetProfile) -> None:
    prompt = overall.prompt
    rows = [
        [
            f"over {threshold:,} tokens",
            f"{count / max(1, prompt.count):.1%}",
            f"{tokens / max(1, prompt.total):.1%}",
            f"{profile.datasets_above(threshold):.0%}",
        ]
        for threshold, (count, tokens) in sorted(prompt.above.items())
    ]
    if overall.longest_characters is not None:
        share = overall.over_long_characters / max(1, overall.requests)
        of_datasets = f"{datasets_long(profile):.0%}"
        rows.append([f"over {LONG_CHARACTERS:,} characters", f"{share:.1%}", "", of_datasets])
    columns = ["", "of requests", "of tokens", "of datasets"]
    shown = 4 if len(profile.datasets) > 1 else 3
    title = "Long prompts" + marked(overall.estimated)
    print_table(title, columns[:shown], [row[:shown] for row in rows])


def _show_prefix(profile: Profile, prefix: PrefixSummary, estimated: bool) -> None:
    points = curve_points(prefix, most=8)
    if prefix.seen_tokens:
        print_table(
            "Prefix reuse by cache size",
            ["cache, tokens", "of prompt tokens found", ""],
            text={2},
            rows=[[f"{size:,}", f"{share:.1%}", bar(share, 1)] for size, share in points],
        )
    print_lines([prefix_sentence(profile, prefix, estimated)])
