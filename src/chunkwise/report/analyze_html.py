"""The analysis as one page with interactive charts."""

from html import escape
from pathlib import Path

import plotly.graph_objects as go

from chunkwise.report.analyze_facts import (
    QUANTILES,
    arrival_sentence,
    bins,
    curve_points,
    headline,
    marked,
    prefix_sentence,
    verdict_lines,
    verdict_word,
)
from chunkwise.report.page import FILL, SECOND, document, section, table, write
from chunkwise.verdict import CANNOT_KNOW
from chunkwise.workload.analysis import Analysis
from chunkwise.workload.profile import DatasetProfile, Profile

MOST_ROWS = 2_000


def write_page(path: Path, analysis: Analysis, model: str) -> None:
    """Write the page. Usage: `write_page(Path("report.html"), analysis, "my-model")`."""
    write(path, page(analysis, model))


def page(analysis: Analysis, model: str) -> str:
    """Return the page's text."""
    profile = analysis.profile
    overall = profile.overall()
    verdict = overall.verdict()
    _, reason, settings, _ = verdict_lines(verdict, model)
    estimated = "<p>Lengths are <b>estimates</b> (characters ÷ 4).</p>" if overall.estimated else ""
    threshold = "" if verdict.threshold is None else f", threshold {verdict.threshold:,} tokens"
    parts = [
        "<h1>Your traffic</h1>",
        f"<p>{escape(headline(profile, overall))}</p>{estimated}",
        f'<div class="verdict"><strong>First verdict: {verdict.name}{threshold}</strong>'
        f"<p>{escape(reason)}</p><p><code>{escape(settings.removeprefix('Settings: '))}</code></p>"
        f'<p class="small">{escape(CANNOT_KNOW)}</p></div>',
        section(
            f"Lengths{marked(overall.estimated)}", _lengths_chart(overall), _quantiles(overall)
        ),
    ]
    if overall.prefix is not None:
        said = prefix_sentence(profile, overall.prefix, overall.estimated)
        parts.append(section("Prefix reuse", _prefix_chart(overall), f"<p>{escape(said)}</p>"))
    if overall.arrivals is not None:
        said = arrival_sentence(overall.arrivals, len(profile.datasets) > 1)
        parts.append(section("Arrivals", _arrivals_chart(overall), f"<p>{escape(said)}</p>"))
    parts += [_datasets(profile), _remarks(analysis)]
    return document("Your traffic", parts, "analyze")


def _lengths_chart(overall: DatasetProfile) -> go.Figure:
    figure = go.Figure()
    for name, summary, colour in (
        ("prompt", overall.prompt, FILL),
        ("output", overall.output, SECOND),
    ):
        if summary.count:
            found = bins(summary)
            figure.add_bar(
                name=f"{name} tokens",
                x=[start for start, _, _ in found],
                y=[count / summary.count for _, _, count in found],
                customdata=[[f"{start:,} to {stop:,}", count] for start, stop, count in found],
                hovertemplate="%{customdata[0]} tokens: %{customdata[1]:,} requests (%{y:.1%})",
                marker_color=colour,
                opacity=0.85,
            )
    # One place per bin, in order: bins double in width, so equal places are a log axis.
    starts = sorted({start for trace in figure.data for start in trace.x})
    figure.update_xaxes(
        type="category",
        categoryorder="array",
        categoryarray=starts,
        title=f"tokens{marked(overall.estimated)}, from",
        nticks=12,
    )
    figure.update_yaxes(tickformat=".0%", title="of requests", rangemode="tozero")
    return figure


def _prefix_chart(overall: DatasetProfile) -> go.Figure:
    assert overall.prefix is not None
    points = curve_points(overall.prefix)
    figure = go.Figure()
    figure.add_scatter(
        x=[size for size, _ in points],
        y=[share for _, share in points],
        mode="lines+markers",
        line_color=FILL,
        hovertemplate="cache of %{x:,} tokens: %{y:.1%} found<extra></extra>",
    )
    figure.add_hline(
        y=overall.prefix.seen_share,
        line_dash="dot",
        line_color=SECOND,
        annotation_text=f"unlimited: {overall.prefix.seen_share:.1%}",
    )
    figure.update_xaxes(type="log", title="cache, tokens", dtick=1, exponentformat="SI")
    figure.update_yaxes(tickformat=".0%", title="of prompt tokens found", rangemode="tozero")
    return figure


def _arrivals_chart(overall: DatasetProfile) -> go.Figure:
    assert overall.arrivals is not None
    width = overall.arrivals.bin_seconds
    figure = go.Figure()
    figure.add_scatter(
        x=[index * width for index in range(len(overall.arrivals.bins))],
        y=[count / width for count in overall.arrivals.bins],
        mode="lines",
        line={"shape": "hv", "color": FILL, "width": 1.5},
        fill="tozeroy",
        hovertemplate="at %{x:,.0f} s: %{y:,.2f} requests/s<extra></extra>",
    )
    figure.update_xaxes(title="seconds")
    figure.update_yaxes(title=f"requests/s, over {width:g} s", rangemode="tozero")
    return figure


def _quantiles(overall: DatasetProfile) -> str:
    rows = [("prompt" + marked(overall.estimated), overall.prompt)]
    if overall.output.count:
        rows.append((f"output ({' and '.join(overall.output_kinds)})", overall.output))
    return table(
        ["tokens", "mean", *QUANTILES, "max", "quantiles"],
        [
            [
                name,
                f"{summary.mean:,.0f}",
                *(f"{summary.quantile(q):,}" for q in QUANTILES.values()),
                f"{summary.largest:,}",
                "exact" if summary.exact else f"rank ±{summary.rank_error:.2%}",
            ]
            for name, summary in rows
        ],
    )


def _datasets(profile: Profile) -> str:
    items = profile.datasets[:MOST_ROWS]
    more = len(profile.datasets) - len(items)
    rows = table(
        ["dataset", "verdict", "requests", "p50", "p95", "max", "over 2,048", "seen before"],
        [
            [
                item.name,
                verdict_word(item),
                f"{item.requests:,}",
                f"{item.prompt.quantile(0.5):,}",
                f"{item.prompt.quantile(0.95):,}",
                f"{item.prompt.largest:,}",
                f"{item.prompt.share_above(2_048):.1%}",
                "" if item.prefix is None else f"{item.prefix.seen_share:.1%}",
            ]
            for item in items
        ],
    )
    title = "Datasets" + marked(any(item.estimated for item in items))
    return f"<h2>{title}</h2>{rows}" + (f"<p>… and {more:,} more.</p>" if more else "")


def _remarks(analysis: Analysis) -> str:
    notes = [f"{item.name}: {note}." for item in analysis.profile.datasets for note in item.notes]
    notes += [f"Left out: {reason}" for _, reason in analysis.skipped]
    if not notes:
        return ""
    lines = "".join(f"<li>{escape(note)}</li>" for note in notes[:MOST_ROWS])
    return f'<h2>Remarks</h2><ul class="small">{lines}</ul>'
