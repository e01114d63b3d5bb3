"""The pictures of a comparison: intervals, distributions, and a stall as it was seen."""

from collections.abc import Sequence
from html import escape
from itertools import cycle

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from chunkwise.durations import say
from chunkwise.lab.stall import Moment, moments
from chunkwise.lab.statistics import Comparison
from chunkwise.measured import Floats
from chunkwise.report.compare_facts import change
from chunkwise.report.page import FILL, INK, LINE, SECOND

COLOURS = (SECOND, "#2a9d6f", "#8a5cd1", "#c2437e", "#5b7083")
STALL = "#d1495b"
POINTS = 400  # of a curve


def colours(comparison: Comparison) -> dict[str, str]:
    """Return one colour for each arm; the baseline's is the same in every report."""
    return {comparison.baseline: FILL, **dict(zip(comparison.arms, cycle(COLOURS), strict=False))}


def intervals(comparison: Comparison) -> go.Figure:
    """Draw every ratio with its interval, over the noise floor as a grey bar."""
    figure = go.Figure()
    ratios = [effect for effect in comparison.twin if effect.metric.as_ratio]
    known = [effect for effect in ratios if np.isfinite(effect.half_width)]
    floors = [float(np.exp(max(-effect.low, effect.high))) for effect in known]
    figure.add_bar(
        name="noise floor",
        orientation="h",
        y=[escape(effect.metric.label) for effect in known],
        base=[1 / floor for floor in floors],
        x=[floor - 1 / floor for floor in floors],
        marker_color=LINE,
        hovertemplate="the baseline against its twin: up to ±%{customdata:.0f}%<extra></extra>",
        customdata=[100 * (floor - 1) for floor in floors],
    )
    for place, arm in enumerate(comparison.arms):
        effects = [e for e in comparison.of(arm) if e.metric.as_ratio and np.isfinite(e.half_width)]
        shown = [effect.shown for effect in effects]
        claimed = [effect.verdict in ("better", "worse") for effect in effects]
        figure.add_scatter(
            name=escape(arm),
            mode="markers",
            x=[middle for middle, _, _ in shown],
            y=[escape(effect.metric.label) for effect in effects],
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [high - middle for middle, _, high in shown],
                "arrayminus": [middle - low for middle, low, _ in shown],
                "thickness": 2,
            },
            marker={
                "color": colours(comparison)[arm],
                "size": 11,
                "symbol": ["circle" if claim else "circle-open" for claim in claimed],
            },
            offsetgroup=f"{place}",
            customdata=[change(effect) for effect in effects],
            hovertemplate="%{y}: %{customdata}",
        )
    figure.add_vline(x=1, line_color=INK, line_width=1)
    figure.update_layout(scattermode="group", scattergap=0.3, barmode="overlay")
    ticks = [0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 3, 5, 10]
    figure.update_xaxes(
        type="log",
        title="times the baseline's",
        tickvals=ticks,
        ticktext=[f"{t:g}×" for t in ticks],
    )
    return figure.update_yaxes(
        categoryorder="array", categoryarray=[escape(e.metric.label) for e in reversed(ratios)]
    )


def first_tokens(comparison: Comparison) -> go.Figure:
    """Draw which share of requests had its first token by when, for each arm."""
    figure = go.Figure()
    for arm, colour in colours(comparison).items():
        waits = _of_all_runs([run.measured.ttft for run in comparison.runs if run.arm == arm])
        share = np.linspace(0, 1, min(POINTS, max(2, len(waits))))
        _add_curve(figure, arm, colour, _quantiles(waits, share), share)
    figure.update_xaxes(type="log", title="seconds to the first token")
    return figure.update_yaxes(tickformat=".0%", title="of requests had it by then")


def gaps(comparison: Comparison) -> go.Figure:
    """Draw which share of gaps was longer, for each arm: the tail is what people feel."""
    figure = go.Figure()
    for arm, colour in colours(comparison).items():
        found = _of_all_runs([run.measured.gaps for run in comparison.runs if run.arm == arm])
        longer = np.geomspace(1 / max(2, len(found)), 1, POINTS)
        _add_curve(figure, arm, colour, _quantiles(found, 1 - longer), longer)
    figure.update_xaxes(type="log", title="seconds between two tokens")
    return figure.update_yaxes(type="log", tickformat=".2%", title="of gaps were longer", dtick=1)


def stall(comparison: Comparison) -> go.Figure | None:
    """Draw the tokens of those who were streaming while a long prompt was read, arm by arm."""
    found = moments(comparison.runs, comparison.baseline, list(colours(comparison)))
    if not found:
        return None
    figure = make_subplots(
        rows=len(found),
        shared_xaxes=True,
        vertical_spacing=0.25 / len(found) if len(found) > 1 else 0,
        subplot_titles=[_title(moment) for moment in found],
    )
    for row, moment in enumerate(found, start=1):
        _add_moment(figure, row, moment, colours(comparison)[moment.arm])
    figure.update_annotations(x=0, xanchor="left", font_size=13)
    figure.update_yaxes(showticklabels=False, showgrid=False, zeroline=False)
    figure.update_xaxes(range=[found[0].begin, found[0].end])
    return figure.update_xaxes(title="seconds since the run began", row=len(found))


def _title(moment: Moment) -> str:
    worst = moment.gap[1] - moment.gap[0]
    return f"<b>{escape(moment.arm)}</b>: nobody waits longer than {say(worst)} between two tokens"


def _add_moment(figure: go.Figure, row: int, moment: Moment, colour: str) -> None:
    first = row == 1
    top = len(moment.rows)
    figure.add_scatter(
        row=row,
        col=1,
        name="a token; one line a request",
        showlegend=first,
        legendgroup="tokens",
        mode="markers",
        marker={"color": colour, "size": 4},
        x=np.concatenate(moment.rows) if top else [],
        y=np.repeat(np.arange(top), [len(times) for times in moment.rows]) if top else [],
        hovertemplate="a token at %{x:.2f} s<extra></extra>",
    )
    if np.isfinite(moment.first_token):
        figure.add_scatter(
            row=row,
            col=1,
            name=f"a prompt of {moment.prompt_tokens:,} tokens, until its first token",
            showlegend=first,
            legendgroup="prompt",
            mode="lines",
            line={"color": INK, "width": 6},
            x=[moment.arrival, moment.first_token],
            y=[top + 0.5, top + 0.5],
            hovertemplate="the long prompt: %{x:.2f} s<extra></extra>",
        )
    figure.add_vrect(
        *moment.gap, row=row, col=1, fillcolor=STALL, opacity=0.18, line_width=0, layer="below"
    )


def _add_curve(figure: go.Figure, arm: str, colour: str, x: Floats, y: Floats) -> None:
    figure.add_scatter(
        name=escape(arm),
        mode="lines",
        line_color=colour,
        x=x,
        y=y,
        hovertemplate="%{x:.3f} s: %{y:.2%}",
    )


def _of_all_runs(columns: Sequence[Floats]) -> Floats:
    found: Floats = np.concatenate([np.zeros(0), *columns])
    return found[np.isfinite(found) & (found > 0)]


def _quantiles(values: Floats, share: Floats) -> Floats:
    found: Floats = np.full(len(share), np.nan)
    return np.quantile(values, share).astype(np.float64) if len(values) else found
