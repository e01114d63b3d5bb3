"""What a capture says, as one page that can be passed on."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from chunkwise.readers.picture import KINDS, QUANTILES, Picture
from chunkwise.report import page
from chunkwise.report.observe import (
    CAUSE_COLUMNS,
    STEP_COLUMNS,
    cause_rows,
    engine_line,
    first_token_line,
    gap_lines,
    headline,
    length_rows,
    say_fine,
    step_rows,
    traffic_lines,
)

MOST_BINS = 240
COLOURS = {"decode": page.FILL, "mixed": page.SECOND, "prefill": "#7b8794"}


def write_page(path: Path, pictures: Sequence[Picture]) -> None:
    """Write the page. Usage: `write_page(Path("seen.html"), [picture])`."""
    page.write(path, text(pictures))


def text(pictures: Sequence[Picture]) -> str:
    """Return the page's text."""
    parts = ["<h1>What your server went through</h1>"]
    for number, picture in enumerate(pictures, 1):
        parts += _run(picture, f" of run {number}" if len(pictures) > 1 else "")
    return page.document("What your server went through", parts, "observe")


def _run(picture: Picture, which: str) -> list[str]:
    lines = [*gap_lines(picture), *([line] if (line := first_token_line(picture)) else [])]
    said = "".join(f"<p>{escape(line)}</p>" for line in lines)
    rows = cause_rows(picture)
    causes = page.table(CAUSE_COLUMNS[:-1], [row[:-1] for row in rows]) if rows else ""
    helps = "".join(f"<li>{escape(row[0])}: {escape(row[-1])}.</li>" for row in rows)
    steps = page.table(STEP_COLUMNS, step_rows(picture)) + f"<p>{escape(engine_line(picture))}</p>"
    return [
        f"<h2>Summary{which}</h2><p>{escape(headline(picture))}</p>"
        f'<div class="verdict">{said}</div>{causes}<ul>{helps}</ul>',
        f"<h2>Requests{which}</h2>{page.table(['', *QUANTILES], length_rows(picture))}"
        + "".join(f"<p>{escape(line)}</p>" for line in traffic_lines(picture)),
        page.section(f"Steps{which}", _distribution(picture), steps),
        page.section(f"Steps over time{which}", _over_time(picture), ""),
    ]


def _distribution(picture: Picture) -> go.Figure:
    """How long steps took, by kind, in bins that grow by a tenth of a decade."""
    seconds = np.maximum(picture.step_seconds, 1e-6)
    low, high = np.floor(np.log10(seconds.min())), np.ceil(np.log10(seconds.max()))
    edges = np.logspace(low, max(high, low + 1), int(10 * max(high - low, 1)) + 1)
    figure = go.Figure()
    for index, name in enumerate(KINDS):
        counts, _ = np.histogram(seconds[picture.step_kinds == index], edges)
        if counts.any():
            figure.add_bar(
                name=name,
                x=[say_fine(edge) for edge in edges[:-1]],
                y=counts,
                marker_color=COLOURS[name],
                hovertemplate="from %{x}: %{y:,} steps",
            )
    figure.update_layout(barmode="stack")
    figure.update_xaxes(type="category", title="a step took, from", nticks=12)
    return figure.update_yaxes(title="steps", rangemode="tozero")


def _over_time(picture: Picture) -> go.Figure:
    """The middle and the longest step of each stretch of time."""
    ends, seconds = picture.step_ends, picture.step_seconds
    width = max(1e-6, float(ends.max() - ends.min()) / MOST_BINS)
    place = ((ends - ends.min()) / width).astype(np.int64)
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    parts = np.split(seconds[order], starts[1:])
    at = place[order][starts] * width
    figure = go.Figure()
    for name, values, colour in (
        ("longest", [float(part.max()) for part in parts], page.SECOND),
        ("middle", [float(np.median(part)) for part in parts], page.FILL),
    ):
        figure.add_scatter(
            name=name,
            x=at,
            y=values,
            mode="lines",
            line={"color": colour, "width": 1.5},
            hovertemplate="at %{x:,.0f} s: %{y:.4f} s",
        )
    if picture.limit_given:
        figure.add_hline(y=picture.limit, line_dash="dot", annotation_text="target")
    figure.update_xaxes(title="seconds since the first step")
    return figure.update_yaxes(title="a step took, seconds", rangemode="tozero")
