"""A simulation as one page: steps over time by kind, TTFT and gap distributions."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from chunkwise.durations import say
from chunkwise.measured import Floats
from chunkwise.report.page import FILL, SECOND, document, section, table, write
from chunkwise.report.simulate import COLUMNS, ROWS
from chunkwise.report.simulate_facts import KINDS, kind_of
from chunkwise.sim.record import Simulation

MOST_STEPS = 1_500
POINTS = 200
COLOURS = {"decode only": FILL, "mixed": SECOND, "prefill only": "#8a5fbf"}


def write_page(path: Path, simulation: Simulation, content: Mapping[str, Any]) -> None:
    """Write the page. Usage: `write_page(Path("run.html"), simulation, facts)`."""
    write(path, page(simulation, content))


def page(simulation: Simulation, content: Mapping[str, Any]) -> str:
    """Return the page's text."""
    machine, measured = content["machine"], simulation.measured
    told = (
        f"{machine['model']} on {machine['device']}: {content['served']:,} requests, "
        f"{content['requests_per_second']:,.2f} requests/s, "
        f"{content['output_tokens_per_second']:,.0f} output tokens/s; "
        f"{content['preemptions']:,} preemptions, {content['cache_hit_share']:.1%} of prompt "
        f"tokens from the prefix cache."
    )
    rows = [
        [name, *("" if (v := content[key][column]) is None else say(v) for column in COLUMNS)]
        for key, name in ROWS.items()
    ]
    shown = min(len(simulation.steps), MOST_STEPS)
    notes = "; ".join([*machine["notes"], *content["notes"]])
    parts = [
        "<h1>A simulated run</h1>",
        f"<p>{escape(told)}</p>",
        table(["", *COLUMNS.values()], rows),
        section(
            "Steps over time",
            _steps_chart(simulation),
            f"<p>The first {shown:,} of {len(simulation.steps):,} steps; a bar's height is the "
            f"step's tokens, its width its time.</p>",
        ),
        section("First token", _shares_chart(measured.ttft, "seconds to the first token"), ""),
        section("Gaps", _shares_chart(measured.gaps, "seconds between two tokens"), ""),
        section("Requests and KV cache", _load_chart(simulation), ""),
        f'<p class="small">Step costs: {escape(machine["source"])}. {escape(notes)}.</p>',
    ]
    return document("A simulated run", parts, "simulate")


def _steps_chart(simulation: Simulation) -> go.Figure:
    steps = simulation.steps
    kinds = kind_of(steps)[:MOST_STEPS]
    tokens = steps.prefill_tokens + steps.decodes
    figure = go.Figure()
    for number, name in enumerate(KINDS):
        mine = np.flatnonzero(kinds == number)
        width = steps.end[mine] - steps.start[mine]
        figure.add_bar(
            x=(steps.start[mine] + width / 2).round(6).tolist(),
            y=tokens[mine].tolist(),
            width=width.round(6).tolist(),
            name=name,
            marker={"color": COLOURS[name], "line": {"width": 0}},
            customdata=[say(one) for one in width.tolist()],
            hovertemplate="%{y:,} tokens in %{customdata}<extra>" + name + "</extra>",
        )
    figure.update_xaxes(title="seconds")
    figure.update_yaxes(title="tokens of the step")
    figure.update_layout(barmode="overlay", bargap=0)
    return figure


def _shares_chart(values: Floats, title: str) -> go.Figure:
    known = np.sort(values[np.isfinite(values)])
    figure = go.Figure()
    if len(known):
        shares = np.unique(np.concatenate([np.linspace(0, 1, POINTS), [0.95, 0.99, 0.999]]))
        figure.add_scatter(
            x=np.quantile(known, shares).round(6).tolist(),
            y=shares.round(4).tolist(),
            mode="lines",
            line={"color": FILL, "width": 2},
            hovertemplate="%{y:.1%} within %{x:.3f} s<extra></extra>",
        )
    figure.update_xaxes(title=title, type="log")
    figure.update_yaxes(title="share", tickformat=".0%")
    return figure


def _load_chart(simulation: Simulation) -> go.Figure:
    steps = simulation.steps
    every = max(1, len(steps) // MOST_STEPS)
    x = steps.start[::every].round(3).tolist()
    figure = go.Figure()
    for name, values, colour in (
        ("running", steps.running, FILL),
        ("waiting", steps.waiting, SECOND),
    ):
        figure.add_scatter(
            x=x, y=values[::every].tolist(), name=name, mode="lines", line={"color": colour}
        )
    figure.add_scatter(
        x=x,
        y=steps.kv_use[::every].round(4).tolist(),
        name="KV cache",
        yaxis="y2",
        mode="lines",
        line={"color": "#7b8794", "dash": "dot"},
    )
    figure.update_xaxes(title="seconds")
    figure.update_yaxes(title="requests")
    figure.update_layout(
        yaxis2={"overlaying": "y", "side": "right", "range": [0, 1.05], "tickformat": ".0%"}
    )
    return figure
