"""The child's side of `child.py`: read one job, do it, report it.

Invariant: the process group dies as soon as stdin ends, whatever the main
thread is doing, because that is how a killed parent looks from here.
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

Job = Callable[[Mapping[str, Any]], Iterator[dict[str, Any]]]

# Job name -> its module; the function in it is called `run_<job>`.
JOBS = {
    "env": "chunkwise.lab.environment",
    "simple": "chunkwise.lab.demo_simple",
    "streams": "chunkwise.lab.demo_streams",
}


def main(report_fd: int) -> int:
    """Do the job that stdin names. Usage: `python -m chunkwise.lab.inside FD`."""
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_die_with_parent, daemon=True).start()
    name = request["job"]
    with os.fdopen(report_fd, "w", buffering=1) as reports:

        def report(event: Mapping[str, Any]) -> None:
            reports.write(json.dumps(event) + "\n")

        try:
            job: Job = getattr(import_module(JOBS[name]), f"run_{name}")
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


def _die_with_parent() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
