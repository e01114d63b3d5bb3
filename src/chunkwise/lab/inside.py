"""The child's side of `child.py`: read one job, do it, report it.

Further lines on stdin are orders for the job. Invariant: the process group dies
as soon as stdin ends, whatever the main thread is doing, because that is how a
killed parent looks from here.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from chunkwise.engine.trouble import explain
from chunkwise.errors import ChunkwiseError, UserMistake
from chunkwise.lab import orders

STDIN = 0

# Yields objects with an "event": "progress", or any other word for a result.
Job = Callable[[Mapping[str, Any]], Iterator[dict[str, Any]]]


def main(report_fd: int) -> int:
    """Do the job that stdin names. Usage: `python -m chunkwise.lab.inside FD`."""
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_listen, daemon=True).start()
    module, _, function = request["job"].partition(":")
    with os.fdopen(report_fd, "w", buffering=1) as reports:

        def report(event: Mapping[str, Any]) -> None:
            reports.write(json.dumps(event) + "\n")

        try:
            job: Job = getattr(import_module(module), function)
            for event in job(request["spec"]):
                report(event)
        except ChunkwiseError as error:
            kind = "mistake" if isinstance(error, UserMistake) else "trouble"
            report({"event": kind, "message": str(error)})
        except Exception as error:
            sentence = explain(f"{type(error).__name__}: {error}")
            if sentence is None:
                raise  # our bug, or unknown to us: the traceback goes to the log
            import traceback

            traceback.print_exc()
            report({"event": "trouble", "message": sentence})
        else:
            report({"event": "finished"})
    return 0


def _listen() -> None:
    # Not sys.stdin: a thread inside its lock would abort the interpreter's own end.
    line: list[bytes] = []
    while piece := os.read(STDIN, 2**16):
        *ended, rest = piece.split(b"\n")
        for end in ended:
            orders.put(b"".join([*line, end]))
            line = []
        line.append(rest)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
