"""Text from anywhere, made safe to show in a terminal.

What comes from a file is shown as it is: it can neither style the output (rich's
markup) nor steer the terminal (control characters).
"""

from rich.markup import escape as escape_markup

from chunkwise.errors import plain


def escape(text: str) -> str:
    """Return text that rich prints as it stands. Usage: `console.print(escape(name))`."""
    return escape_markup(plain(text))
