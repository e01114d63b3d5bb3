"""Run engine work in a child process that cannot outlive us.

vLLM logs to stdout, starts processes of its own and can take the whole process
down; so every command that loads it does so here. Invariant: when the `with`
block ends, by success, error, Ctrl-C or even `kill -9` of this process, no
process of the child's group is left. The child reads its job from stdin and
takes the end of stdin as the end of its parent; what it reports comes back as
one JSON object a line; everything else it prints goes to the log file.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chunkwise.engine.trouble import explain
from chunkwise.errors import ChunkwiseError, EngineTrouble, UserMistake

MAX_EVENT_BYTES = 256 * 2**20
LOG_TAIL_BYTES = 64 * 1024
STOP_SECONDS = 10
ENVIRONMENT = {
    # The engine lives in the child itself: it starts in seconds instead of half
    # a minute, and the child is all there is to stop.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Nothing here may report home; the user asked for a local answer.
    "VLLM_NO_USAGE_STATS": "1",
}


class Child:
    """A job, "module:function", in its own process.

    Usage: `with Child("chunkwise.lab.environment:run", {}) as child: child.result()`
    """

    def __init__(self, job: str, spec: Mapping[str, Any], keep_log: bool = True):
        self.job = job
        self.spec = dict(spec)
        self.keep_log = keep_log
        handle, name = tempfile.mkstemp(prefix="chunkwise-", suffix=".log")
        os.close(handle)
        self.log = Path(name)

    def __enter__(self) -> Self:
        receive, send = os.pipe()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "chunkwise.lab.inside", str(send)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(send,),
                start_new_session=True,  # a group of its own, so that all of it can be stopped
                env={**os.environ, **ENVIRONMENT},
            )
        os.close(send)
        self._events = os.fdopen(receive, "rb")
        self.send({"job": self.job, "spec": self.spec})
        return self

    def send(self, order: Mapping[str, Any]) -> None:
        """Tell a running job what to do next; it must have reported something before."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died already: events() says why
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def events(self, say: Callable[[str, float], None] | None = None) -> Iterator[dict[str, Any]]:
        """Yield what the job reports; raise what went wrong as a sentence.

        A `progress` event has a text and the share that is done; it goes to `say`.
        """
        finished = False
        while line := self._events.readline(MAX_EVENT_BYTES):
            event = json.loads(line)
            match event.pop("event"):
                case "mistake":
                    raise UserMistake(event["message"])
                case "trouble":
                    raise EngineTrouble(f"{event['message']} The log is {self.log}.")
                case "finished":
                    finished = True
                case "progress":
                    if say is not None:
                        say(event["text"], event["done"])
                case _:
                    yield event
        if not finished:
            raise self._death()

    def result(self) -> dict[str, Any]:
        """Run to the end and return the last report."""
        last: dict[str, Any] = {}
        for event in self.events():
            last = event
        return last

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._signal(signal.SIGTERM if kind is None else signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        # Whatever is left of the group: engine cores, workers, compilers.
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._events.close()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if kind is None and not self.keep_log:
            self.log.unlink(missing_ok=True)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _death(self) -> ChunkwiseError:
        code = self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
            tail = log.read().decode(errors="replace")
        sentence = explain(tail)
        if code == -signal.SIGKILL and sentence is None:
            sentence = "The engine was killed from outside, most likely for want of memory."
        return EngineTrouble(
            f"{sentence or f'The engine ended with {how}.'} The log is {self.log}."
        )
