"""How long a step took, seen from the scheduler, for one batch in flight or several.

Batches run one after another on the device, in the order in which they were
scheduled. So a step begins when it was scheduled or when the one before it
ended, whichever is later, and ends when its output arrives. Invariant: steps
end in the order in which they were scheduled; a clock that goes backwards makes
a step of no length, never a negative one.
"""

import time
from collections import deque
from typing import Any

now = time.monotonic


class StepClock:
    """Usage: `clock.scheduled(batch, what)`; later `seconds, what = clock.ended(batch, at)`."""

    def __init__(self) -> None:
        self._in_flight: deque[tuple[Any, float, Any]] = deque()
        self._last_end = float("-inf")

    def scheduled(self, batch: Any, what: Any) -> None:
        """Note that a batch was handed to the device just now."""
        self._in_flight.append((batch, now(), what))

    def ended(self, batch: Any, at: float) -> tuple[float, Any] | None:
        """Return the seconds and the note of this batch; None if it was never scheduled here."""
        while self._in_flight:
            known, start, what = self._in_flight.popleft()
            if known is batch:
                seconds = at - (start if start > self._last_end else self._last_end)
                self._last_end = at
                return (seconds if seconds > 0 else 0.0), what
            # One whose output never came: the engine dropped it.
        return None
