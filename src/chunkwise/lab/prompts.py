"""Prompts of an exact length in tokens, from plain English.

Each prompt opens with its own number, so that no two share a prefix and the
prefix cache cannot make a demo look better than it is.
"""

from collections.abc import Sequence
from typing import Protocol

PASSAGE = (
    "A server that answers many people at once has to decide, many times a second, whose work "
    "comes next. A long document must be read in full before its first word of answer, and "
    "while it is being read, everybody whose answer is already under way has to wait. If the "
    "document is read in pieces, the others get a word in between; they wait less, the "
    "document waits a little more, and the total work grows by the cost of each interruption. "
)


class Tokenizer(Protocol):
    """The part of a tokenizer that is needed here."""

    def encode(self, text: str) -> Sequence[int]:
        """Return the ids of a text."""
        ...


def prompt_ids(tokenizer: Tokenizer, number: int, tokens: int) -> list[int]:
    """Return `tokens` ids of English text that starts unlike any other number's."""
    ids: list[int] = list(tokenizer.encode(f"Case {number}. "))
    page = 0
    while len(ids) < tokens:
        page += 1
        ids += tokenizer.encode(f"Page {page} of case {number}. {PASSAGE}")
    return ids[:tokens]
