"""One real OpenAI server of vLLM, on loopback, that cannot outlive us.

Invariant: when `stop()` returns, or when this process ends in any way, nothing
of the server is left (`keeper.py` sees to it). A server with our plug-in learns in
a folder of its own, so that no run depends on what another left behind. A server
answers to a name that nobody else knows, so that another program on its port is
never taken for it.
"""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

from chunkwise.durations import say
from chunkwise.engine.serve import PREFIX
from chunkwise.engine.trouble import explain
from chunkwise.errors import EngineTrouble

PROGRAM = "vllm.entrypoints.openai.api_server"
HOST = "127.0.0.1"
PATIENCE = 1800.0  # seconds until a server must be healthy: large models load for long
STOP_SECONDS = 15.0
BUSY_SECONDS = 5.0  # a server under load may take so long to say that it is well
PORT_TRIES = 3
PORTS = range(20_000, 32_000)
LOG_TAIL_BYTES = 64 * 1024
PORT_TAKEN = "ddress already in use"
# Keys guard a server from others; on loopback, for minutes, they would lock us out.
HIDDEN = ("VLLM_API_KEY",)
# No proxy stands between us and loopback.
_OPENER = build_opener(ProxyHandler({}))


class Server:
    """Usage: `server = Server("off", model, args); server.wait_healthy(); server.stop()`."""

    def __init__(
        self,
        name: str,
        model: str,
        args: Sequence[str],
        environment: Mapping[str, str] | None = None,  # of our plug-in, where it has it
    ):
        self.name = name
        self.model = f"chunkwise-{uuid.uuid4().hex[:12]}"  # what it is asked for by
        self._command = [
            *(sys.executable, "-m", PROGRAM),
            *("--model", model, "--served-model-name", self.model, "--host", HOST),
            *args,
        ]
        handle, log = tempfile.mkstemp(prefix="chunkwise-server-", suffix=".log")
        os.close(handle)
        self.log = Path(log)
        self._learned = tempfile.TemporaryDirectory(
            prefix="chunkwise-learned-", ignore_cleanup_errors=True
        )
        self._environment = _environment(environment or {}, self._learned.name)
        self._tries = 0
        self._start()

    def _start(self) -> None:
        self._tries += 1
        port = free_port()
        self.url = f"http://{HOST}:{port}"
        self._started = time.monotonic()
        with self.log.open("wb") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "chunkwise.lab.keeper", *self._command, "--port", str(port)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._environment,
            )

    def wait_healthy(self, patience: float | None = None) -> None:
        """Return when it answers; raise a sentence when it dies or takes too long."""
        limit = PATIENCE if patience is None else patience
        while not self._is_itself(timeout=1.0):
            if self._keeper.poll() is not None:
                if PORT_TAKEN in self.tail() and self._tries < PORT_TRIES:
                    self.stop(keep_log=True)
                    self._start()  # somebody was faster; there are other ports
                    continue
                raise self.death("did not start")
            if time.monotonic() - self._started > limit:
                self.stop(keep_log=True)
                raise EngineTrouble(
                    f"The server of `{self.name}` was not healthy after {say(limit)}. "
                    f"Its log is {self.log}."
                )
            time.sleep(0.2)

    @property
    def answers(self) -> bool:
        """Whether it, and no other program on its port, is there and healthy."""
        return self._is_itself(timeout=BUSY_SECONDS)

    def _is_itself(self, timeout: float) -> bool:
        return self._keeper.poll() is None and models(self.url, timeout) == [self.model]

    def death(self, what: str) -> EngineTrouble:
        """Return the sentence for a server that is no more."""
        sentence = explain(self.tail()) or "It does not say why."
        return EngineTrouble(
            f"The server of `{self.name}` {what}: {sentence} Its log is {self.log}."
        )

    def tail(self) -> str:
        """Return the end of its log."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace")

    def stop(self, keep_log: bool = False) -> None:
        """End it and all its processes."""
        assert self._keeper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._keeper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):  # if even the keeper was killed
            os.killpg(self._keeper.pid, signal.SIGKILL)
        self._keeper.wait()
        self._learned.cleanup()
        if not keep_log:
            self.log.unlink(missing_ok=True)


def _environment(ours: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return what a server inherits; a plug-in of ours heeds only what its arm says."""
    hidden = (*HIDDEN, PREFIX) if ours else HIDDEN
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    own = {**ours, f"{PREFIX}_DIR": folder} if ours else {}
    return {**kept, "VLLM_NO_USAGE_STATS": "1", **own}


class Given:
    """A server that somebody else started and will stop."""

    def __init__(self, name: str, url: str):
        self.name, self.url = name, url
        self.model = ""

    def wait_healthy(self) -> None:
        """Learn the name of what it serves."""
        names = models(self.url)
        if not names:
            raise EngineTrouble(
                f"No OpenAI server answers at {self.url} (arm `{self.name}`): start it first."
            )
        self.model = names[0]

    @property
    def answers(self) -> bool:
        """Whether it still does."""
        return bool(models(self.url))

    def death(self, what: str) -> EngineTrouble:
        """Return the sentence for a server that no longer answers."""
        return EngineTrouble(f"The server at {self.url} (arm `{self.name}`) {what}.")

    def stop(self, keep_log: bool = False) -> None:
        """Not ours to stop."""


def models(url: str, timeout: float = BUSY_SECONDS) -> list[str]:
    """Return what a server serves; nothing if it does not answer or is not healthy."""
    try:
        with _OPENER.open(f"{url}/health", timeout=timeout):
            pass
        # The same key that vLLM's benchmark client takes for a server that is not ours.
        key = os.environ.get("OPENAI_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        asked = Request(f"{url}/v1/models", headers=headers)  # noqa: S310 - http, see arms.py
        with _OPENER.open(asked, timeout=timeout) as answer:
            found = json.loads(answer.read(2**20))
        return [str(item["id"]) for item in found["data"]]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return []


def free_port() -> int:
    """Return a port that nobody has right now.

    Of those below the ones that systems hand out by themselves: a server takes many seconds
    until it binds its port, and until then any outgoing connection may be given one of those.
    """
    for port in random.sample(PORTS, 100):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind((HOST, port))
            return port
    raise EngineTrouble(f"No port is free between {PORTS[0]} and {PORTS[-1]}: end a few servers.")
