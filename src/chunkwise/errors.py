"""Errors that a person reads: one sentence that says what to do next.

Every error carries the exit code that the command line ends with, so that no
other place has to know the mapping. Anything that is not a `ChunkwiseError` is
our bug and keeps its traceback.
"""


def plain(text: str) -> str:
    """Return text without control characters. Usage: `plain("\\x1b[31m") == "�[31m"`."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "\ufffd" for sign in text)


class ChunkwiseError(Exception):
    """Base of all errors that are meant for people. Usage: `raise UserMistake("…")`."""

    exit_code = 3

    def __str__(self) -> str:
        # Sentences quote files, and a file must not steer the terminal.
        return plain(super().__str__())


class UserMistake(ChunkwiseError):  # noqa: N818 - reads as a sentence where it is raised
    """The input was wrong and the person can mend it: exit code 2."""

    exit_code = 2


class EngineTrouble(ChunkwiseError):  # noqa: N818
    """The environment or the engine could not do it: exit code 3."""

    exit_code = 3
