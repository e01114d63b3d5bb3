"""A comparison as one page that opens without a network."""

from html import escape
from pathlib import Path

from chunkwise.errors import UserMistake
from chunkwise.lab.statistics import Comparison
from chunkwise.report.compare_facts import sentences


def write(comparison: Comparison, path: Path) -> None:
    """Write the page. Usage: `write(comparison, Path("compare.html"))`."""
    try:
        path.write_text(page(comparison), encoding="utf-8")
    except OSError as error:
        raise UserMistake(f"Cannot write {path}: {error.strerror or error}.") from None


def page(comparison: Comparison) -> str:
    """Return the page's text."""
    lines = "".join(f"<li>{escape(line)}</li>" for line in sentences(comparison))
    return f'<!doctype html><html lang="en"><body><ul>{lines}</ul></body></html>'
