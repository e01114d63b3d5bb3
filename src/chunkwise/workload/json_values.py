"""JSON read one object at a time: lines, one array, or objects over several lines.

Invariant: at most one object of up to `LONGEST` characters and one piece of the
file are in memory, however the file is laid out. What is not JSON ends as a
sentence with the number of the object.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from chunkwise.errors import UserMistake

LONGEST = 16 * 2**20
_PIECE = 2**20


def objects(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the file's objects. Usage: `for row in objects(Path("sharegpt.json")): …`."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    number, text, at, need, ended, array = 0, "", 0, _PIECE, False, False
    try:
        with path.open(encoding="utf-8-sig") as file:
            while True:
                if not ended and len(text) - at < need:
                    piece = file.read(need)
                    ended = not piece
                    text, at = text[at:] + piece, 0
                at = _skip(text, at, " \t\r\n,]" if array else " \t\r\n")
                if at == len(text):
                    if ended:
                        return
                    continue
                if not number and not array and text[at] == "[":
                    array, at = True, at + 1
                    continue
                try:
                    value, at = decoder.raw_decode(text, at)
                except json.JSONDecodeError as error:
                    # Perhaps cut by the end of the piece: get more, up to the limit.
                    if ended:
                        raise _broken(path, number, error.msg) from None
                    if len(text) - at > LONGEST:
                        raise UserMistake(
                            f"{path}: object {number + 1:,} is not valid JSON, or is over "
                            f"{LONGEST // 2**20} MiB."
                        ) from None
                    need = 2 * max(need, len(text) - at)
                    continue
                need = _PIECE
                number += 1
                if not isinstance(value, dict):
                    raise UserMistake(
                        f"{path}: entry {number:,} is not an object with named fields, so there "
                        f"is no prompt to find in it."
                    )
                yield value
    except UnicodeDecodeError:
        raise UserMistake(f"{path} is not UTF-8 text after object {number:,}.") from None
    except OSError as error:
        raise UserMistake(f"Cannot read {path}: {error.strerror or error}.") from None
    except RecursionError:
        raise _broken(path, number, "nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits, NaN, Infinity
        raise _broken(path, number, str(error)) from None


def _skip(text: str, at: int, what: str) -> int:
    while at < len(text) and text[at] in what:
        at += 1
    return at


def _broken(path: Path, number: int, reason: str) -> UserMistake:
    return UserMistake(f"{path}: object {number + 1:,} is not valid JSON ({reason[:100]}).")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
