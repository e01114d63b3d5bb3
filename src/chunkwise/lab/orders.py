"""What the parent still wants of a job that is already running (the child's side).

Usage, inside a job: `for order in orders.received(): …`. The list has no end of
its own: when the parent is done with the child, it stops it.
"""

import json
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

_LINES: SimpleQueue[bytes] = SimpleQueue()


def put(line: bytes) -> None:
    """Keep a line that came from the parent."""
    _LINES.put(line)


def received() -> Iterator[dict[str, Any]]:
    """Yield each order, waiting for the next one."""
    while True:
        yield json.loads(_LINES.get())
