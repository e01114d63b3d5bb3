"""A calibration as one page: predicted against measured, and what depth costs."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from chunkwise.cost.fitted import FittedCost, TimedStep
from chunkwise.cost.step import StepShape
from chunkwise.cost.words import contexts, sentences
from chunkwise.report.calibrate import buys_sentences
from chunkwise.report.page import FILL, LINE, SECOND, document, section, write

MOST_POINTS = 4000


def write_page(
    path: Path, content: dict[str, Any], cost: FittedCost, steps: Sequence[TimedStep]
) -> None:
    """Write the page. Usage: `write_page(Path("cost.html"), content, cost, steps)`."""
    title = f"What a step costs: {content['model']}"
    said = "".join(f"<p>{escape(line)}</p>" for line in sentences(content))
    bought = "".join(f"<li>{escape(line)}</li>" for line in buys_sentences(content))
    parts = [
        f"<h1>{escape(title)}</h1><p>{escape(content['device'])}</p>{said}<ul>{bought}</ul>",
        section("Predicted against measured", _scatter(cost, steps), ""),
    ]
    if len(contexts(cost)) > 1:
        parts.append(section("A chunk by its depth", _depths(cost), ""))
    write(path, document(title, parts, "calibrate"))


def _scatter(cost: FittedCost, steps: Sequence[TimedStep]) -> go.Figure:
    chosen = steps[:: max(1, len(steps) // MOST_POINTS)]
    figure = go.Figure()
    for name, colour, with_prefill in (
        ("with prefill", FILL, True),
        ("decodes only", SECOND, False),
    ):
        points = [step for step in chosen if bool(step.shape.chunks) == with_prefill]
        figure.add_scattergl(
            name=name,
            x=[step.seconds * 1e3 for step in points],
            y=[cost.seconds(step.shape) * 1e3 for step in points],
            customdata=[[step.shape.prefill_tokens, step.shape.decodes] for step in points],
            mode="markers",
            marker={"color": colour, "size": 5, "opacity": 0.6},
            hovertemplate="measured %{x:.1f} ms, predicted %{y:.1f} ms<br>"
            "%{customdata[0]:,} prefill tokens, %{customdata[1]} decodes<extra></extra>",
        )
    low, high = (float(np.quantile([s.seconds for s in chosen], q)) * 1e3 for q in (0, 1))
    figure.add_scatter(
        name="exact", x=[low, high], y=[low, high], mode="lines", line={"color": LINE}
    )
    figure.update_xaxes(type="log", title="measured, ms")
    return figure.update_yaxes(type="log", title="predicted, ms")


def _depths(cost: FittedCost) -> go.Figure:
    figure = go.Figure()
    deepest = max(contexts(cost))
    depths = [deepest * part // 16 for part in range(17)]
    largest = cost.largest.prefill_tokens
    for tokens, colour in ((max(1, largest // 4), SECOND), (max(1, largest), FILL)):
        figure.add_scatter(
            name=f"{tokens:,} tokens",
            x=depths,
            y=[cost.seconds(StepShape.of([(tokens, depth)])) * 1e3 for depth in depths],
            mode="lines",
            line_color=colour,
        )
    figure.update_xaxes(title="context before the chunk, tokens")
    return figure.update_yaxes(title="step, ms", rangemode="tozero")
