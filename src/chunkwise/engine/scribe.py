"""The thread beside the engine that writes records down and counts them.

The step's path only appends to a bounded ring. Invariant: a ring that is full
drops the newest record and counts it, so that memory is bounded and the engine
never waits; a part that fails is dropped with one line, and the others go on.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from chunkwise.engine.blocks import BlockIds
from chunkwise.engine.failopen import step_aside
from chunkwise.observed import Record

RING = 65_536
PAUSE = 0.5  # seconds between two looks at the ring
BURST = 64  # records between two chances for the engine's thread to run


class Part(Protocol):
    """Something that takes records: the files, the statistics."""

    doing: str
    consequence: str

    def take(self, record: Record) -> None:
        """Take one record in."""
        ...

    def flush(self, dropped: int) -> None:
        """Make what was taken visible; `dropped` records were lost since the start."""
        ...

    def close(self) -> None:
        """Finish."""
        ...


class Scribe:
    """Usage: `scribe.put(record)` in the step; `scribe.start(make_record, files, exporter)`."""

    def __init__(self) -> None:
        self._ring: deque[Any] = deque()
        self._room = RING
        self.dropped = 0
        self._stop = threading.Event()
        self._parts: list[Part] = []
        self._thread: threading.Thread | None = None

    def put(self, raw: Any) -> None:
        """Append to the ring; never blocks."""
        if len(self._ring) < self._room:
            self._ring.append(raw)
        else:
            self.dropped += 1

    def start(self, make: Callable[[Any, Any], Record], *parts: Part) -> None:
        """Begin to work in a thread of its own."""
        self._make = make
        self._blocks = BlockIds()
        self._parts = list(parts)
        # A daemon: a server that is told to stop must not wait for us.
        self._thread = threading.Thread(target=self._work, name="chunkwise", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what is left; waits a few seconds at most."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _work(self) -> None:
        while True:
            last = self._stop.wait(PAUSE)
            self._drain()
            if last or self._room == 0:
                break
        for part in list(self._parts):
            self._guarded(part, part.close)

    def _drain(self) -> None:
        for done in range(len(self._ring)):
            try:
                record = self._make(self._ring.popleft(), self._blocks)
            except Exception as error:
                step_aside("make a record", error, "nothing more is recorded")
                self._room = 0
                self._ring.clear()
                return
            for part in list(self._parts):
                self._guarded(part, part.take, record)
            if done % BURST == BURST - 1:
                time.sleep(0)  # lets go of the interpreter's lock
        for part in list(self._parts):
            self._guarded(part, part.flush, self.dropped)

    def _guarded(self, part: Part, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:
            self._parts.remove(part)
            step_aside(part.doing, error, part.consequence)
            with contextlib.suppress(Exception):  # it is broken; this is tidying up
                part.close()
