"""Where the gaps between tokens came from, record by record.

Every running decode gets a token at the end of every step, so one step is one
gap for all of them, and only the exceptions (held back, preempted) need a name
each. Invariant: works on the stream of a capture, live or from files, and
remembers only requests that are waiting for their next token.
"""

from collections.abc import Iterator
from typing import NamedTuple

from chunkwise.observed import Request, Step

PREFILL = "long step: prefill beside it"
DECODE = "long step: decodes only"
BETWEEN = "between steps"
HELD = "held back"
PREEMPTED = "preemption"
CAUSES = (PREFILL, DECODE, BETWEEN, HELD, PREEMPTED)


class Gap(NamedTuple):
    """The same gap of `requests` requests."""

    seconds: float
    requests: int
    cause: str
    step: int


class GapFinder:
    """Usage: `for record in capture: for gap in finder.take(record): …`."""

    def __init__(self) -> None:
        self._last_end: float | None = None
        # Requests that miss their turn -> when their last token came, and why.
        self._late: dict[int, tuple[float, str]] = {}

    def take(self, record: Step | Request) -> Iterator[Gap]:
        """Take the next record in; yield the gaps that it ends."""
        if isinstance(record, Request):
            self._late.pop(record.number, None)
            return
        last = self._last_end
        self._last_end = record.end
        if last is None:
            return
        for number in record.preempted:
            since, _ = self._late.get(number, (last, ""))
            self._late[number] = (since, PREEMPTED)
        for number in record.held:
            self._late.setdefault(number, (last, HELD))
        usual = record.decodes
        if self._late:
            caught_up = self._caught_up(record)
            usual -= sum(1 for number in caught_up if number not in record.ended)
            for number in caught_up:
                since, cause = self._late.pop(number)
                yield Gap(record.end - since, 1, cause, record.number)
        if usual > 0:
            seconds = record.end - last
            yield Gap(seconds, usual, _cause(record, seconds), record.number)

    def _caught_up(self, step: Step) -> list[int]:
        # One that was held back decodes again as soon as it is not; a preempted
        # one has its prefill to do first, and gets its token when that ends.
        return [
            number
            for number, (_, cause) in self._late.items()
            if (cause == HELD and number not in step.held)
            or (cause == PREEMPTED and number in step.ended)
        ]


def _cause(step: Step, seconds: float) -> str:
    if step.seconds < seconds / 2:
        return BETWEEN
    return PREFILL if step.chunks else DECODE
