"""Tables, bars and progress for the terminal, over rich.

Results go to stdout; progress, notes and errors go to stderr, so that
`chunkwise … > file` and `--json` stay clean.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from chunkwise.errors import plain

PARTS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


class Progress(Protocol):
    """Says what is being done now."""

    def __call__(self, text: str, done: float | None = None) -> None:
        """Show `text`; `done` is the finished share, if it is known."""
        ...


def print_json(command: str, content: Mapping[str, Any]) -> None:
    """Write the one JSON object of a command to stdout."""
    json.dump({"schema": f"chunkwise.{command}/1", **content}, sys.stdout, indent=2)
    sys.stdout.write("\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table; the first column is text, one without a name a bar, the others numbers."""
    table = Table(title=_safe(title), title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        is_number = index > 0 and column
        table.add_column(_safe(column), justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(_safe(cell) for cell in row))
    Console(highlight=False).print(table)


def print_lines(lines: Sequence[str]) -> None:
    """Write plain sentences."""
    console = Console(highlight=False)
    for line in lines:
        console.print(_safe(line))


def print_note(text: str) -> None:
    """Write a remark to stderr."""
    Console(stderr=True, highlight=False).print(_safe(text), style="dim")


@contextmanager
def progress(total: float = 1.0) -> Iterator[Progress]:
    """Show a bar on stderr while work is done. Usage: `with progress() as say: say("…", 0.5)`."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)

        def say(text: str, done: float | None = None) -> None:
            bar.update(task, description=_safe(text), completed=done)
            if not console.is_terminal:
                console.print(_safe(text), style="dim", highlight=False)

        yield say


def bar(value: float, largest: float, width: int = 24) -> str:
    """Draw a horizontal bar of up to `width` characters, an eighth of one exact."""
    eighths = 0 if largest <= 0 else round(value / largest * width * 8)
    return "█" * (eighths // 8) + PARTS[eighths % 8]


def _safe(text: str) -> str:
    # What comes from a file is shown as it is: no markup and no control characters.
    return escape(plain(text))
