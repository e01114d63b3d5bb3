"""Small files that others made: read whole, but never more than a bound."""

from pathlib import Path

from chunkwise.errors import UserMistake
from chunkwise.sizes import say_bytes


def read_small(path: Path, most: int, what: str) -> bytes:
    """Return a file's content. Usage: `read_small(path, 65536, "a settings file")`."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise UserMistake(f"Cannot read {path}: {error.strerror or error}.") from None
    if len(content) > most:
        raise UserMistake(f"{path} is over {say_bytes(most)}: not {what}.")
    return content
