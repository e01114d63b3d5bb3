"""The keeper: whoever dies first, nothing of the group is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from .test_child import alive, gone

# A "server" with a worker of its own, which does not notice its parent's end.
FAMILY = """
import os, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), worker.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def kept() -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    keeper = subprocess.Popen(
        [sys.executable, "-m", "chunkwise.lab.keeper", sys.executable, "-c", FAMILY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert keeper.stdout
    assert keeper.stdin
    pids = [int(word) for word in keeper.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(alive, pids))
    yield keeper, pids
    keeper.stdin.close()
    keeper.wait(20)
    keeper.stdout.close()
    assert gone(pids)


def test_our_end_is_theirs(kept: tuple[subprocess.Popen[str], list[int]]) -> None:
    keeper, pids = kept
    assert keeper.stdin
    keeper.stdin.close()
    assert gone([keeper.pid, *pids])


def test_a_killed_server_leaves_no_worker(kept: tuple[subprocess.Popen[str], list[int]]) -> None:
    keeper, (server, worker) = kept
    os.kill(server, signal.SIGKILL)
    assert gone([worker])
    keeper.wait(10)
    assert keeper.stdout
    assert "the server ended with code -9" in keeper.stdout.read()
