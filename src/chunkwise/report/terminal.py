"""Tables, bars and progress for the terminal, over rich.

Results go to stdout; progress, notes and errors go to stderr, so that
`chunkwise … > file` and `--json` stay clean.
"""

import json
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console, JustifyMethod
from rich.table import Table

from chunkwise.report.escape import escape

PARTS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


class Progress(Protocol):
    """Says what is being done now."""

    def __call__(self, text: str, done: float) -> None:
        """Show `text`, and how large a share of the work is done."""
        ...


def print_json(command: str, content: Mapping[str, Any]) -> None:
    """Write the one JSON object of a command to stdout."""
    json.dump({"schema": f"chunkwise.{command}/1", **content}, sys.stdout, indent=2)
    sys.stdout.write("\n")


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    text: Container[int] = (0,),
) -> None:
    """Write a table; `text` names the columns of words, the others are numbers."""
    table = Table(title=escape(title), title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        # Fold, never cut: two names that differ in their ends must stay two names.
        justify: JustifyMethod = "left" if index in text else "right"
        table.add_column(escape(column), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    Console(highlight=False).print(table)


def screen_width() -> int:
    """Return how many characters a line of the terminal has."""
    return Console().width


def print_lines(lines: Sequence[str]) -> None:
    """Write plain sentences."""
    console = Console(highlight=False)
    for line in lines:
        console.print(escape(line))


def print_command(line: str) -> None:
    """Write a line to paste into a shell: whole, however narrow the screen is."""
    Console(highlight=False).print(escape(line), soft_wrap=True)


def print_note(text: str) -> None:
    """Write a remark to stderr."""
    Console(stderr=True, highlight=False).print(escape(text), style="dim")


@contextmanager
def progress() -> Iterator[Progress]:
    """Show a bar on stderr while work is done. Usage: `with progress() as say: say("…", 0.5)`."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def say(text: str, done: float) -> None:
            bar.update(task, description=escape(text), completed=done)
            if not console.is_terminal:
                console.print(escape(text), style="dim", highlight=False)

        yield say


def bar(value: float, largest: float, width: int = 24) -> str:
    """Draw a horizontal bar of up to `width` characters, an eighth of one exact."""
    eighths = 0 if largest <= 0 else round(value / largest * width * 8)
    return "█" * (eighths // 8) + PARTS[eighths % 8]
