"""Jobs that a child can be asked to do without vLLM."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from chunkwise.errors import EngineTrouble, UserMistake


def echo(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    print("noise on stdout")
    yield {"event": "progress", "text": "half way", "done": 0.5}
    yield {"event": "answer", **spec}


def fail(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if spec["how"] == "mistake":
        raise UserMistake("You gave the wrong thing.")
    if spec["how"] == "trouble":
        raise EngineTrouble("The machine is too small.")
    if spec["how"] == "known":
        raise ValueError("No available memory for the cache blocks.")
    if spec["how"] == "bug":
        raise KeyError("unexpected")
    if spec["how"] == "kill":
        os.kill(os.getpid(), 9)
    os._exit(7)
    yield {}


def family(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Start a grandchild, as an engine does, then hang."""
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield {"event": "family", "pids": [os.getpid(), grandchild.pid]}
    time.sleep(600)
