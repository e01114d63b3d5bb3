"""One self-contained page: interactive charts, no network, readable on a phone.

Everything that came from a file is escaped where it enters the page, and the
page's own policy forbids it to load anything. Invariant: the page is a single
file that looks the same with the network unplugged.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from chunkwise import __version__
from chunkwise.errors import UserMistake

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
INK, LINE, FILL, SECOND = "#1f2933", "#d5dbe1", "#2f6fdf", "#e08a2e"
HEIGHT = "22rem"
STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; color: #1f2933; background: #fff;
       font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: .5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .25rem; }
.verdict { border-left: 4px solid #2f6fdf; background: #f3f6fb; padding: .75rem 1rem; }
.verdict strong { font-size: 1.15rem; }
code { background: #eef1f4; padding: .1rem .3rem; border-radius: .2rem; }
.small { color: #52606d; font-size: .9rem; }
.scroll { overflow-x: auto; } .chart { width: 100%; height: 22rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #d5dbe1; text-align: right;
         white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 8rem; }
"""


def document(title: str, parts: Sequence[str], command: str) -> str:
    """Return a page's text from its parts, which are HTML."""
    made_by = f'<p class="small">Made by chunkwise {__version__} {command}.</p>'
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f"<script>{get_plotlyjs()}</script></head><body>{''.join(parts)}{made_by}</body></html>"
    )


def write(path: Path, text: str) -> None:
    """Write a page, or say why it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserMistake(f"Cannot write {path}: {error.strerror or error}.") from None


def section(title: str, figure: go.Figure, text: str, height: str = HEIGHT) -> str:
    """Return a heading, some HTML and a chart."""
    name = title.split(" (")[0].lower().replace(" ", "-")
    chart = styled(figure).to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"chart-{name}",
        default_height=height,
        config={"responsive": True, "displayModeBar": False, "displaylogo": False},
    )
    return f"<h2>{escape(title)}</h2>{text}{chart}"


def styled(figure: go.Figure) -> go.Figure:
    """Give a figure the look that all of them share."""
    figure.update_layout(
        template="plotly_white",
        margin={"l": 50, "r": 10, "t": 10, "b": 50},
        font={"color": INK, "size": 13},
        legend={"orientation": "h", "y": 1.12},
        bargap=0.05,
        dragmode=False,
    )
    figure.update_xaxes(automargin=True, gridcolor=LINE)
    return figure.update_yaxes(automargin=True, gridcolor=LINE)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of plain text."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
