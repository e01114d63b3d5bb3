"""Real servers, a real client, and everything that can be killed is killed.

One server stands for the whole module; the comparisons hold it (a given server,
as its own twin too) against one that they start themselves. Starting vLLM is
what takes the time: what can start side by side does, and runs are interrupted
where the given server is asked, which is there at once.
"""

import http.server
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from chunkwise.errors import EngineTrouble
from chunkwise.lab import compare as lab
from chunkwise.lab import runs, server
from chunkwise.lab.load import Client, Request
from chunkwise.lab.server import Server

from .test_child import gone

pytestmark = pytest.mark.engine

ARGS = ["--max-model-len", "1024", "--kv-cache-memory-bytes", "268435456", "--max-num-seqs", "16"]
REQUESTS = 10
ROUNDS = 2


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        # Without a worker process of its own a server starts a third sooner.
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        yield


class Other(http.server.BaseHTTPRequestHandler):
    """Another program, healthy and friendly, on the port that we wanted."""

    def do_GET(self) -> None:
        content = b'{"data": [{"id": "other"}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def client(timing_30m: Path) -> Iterator[Client]:
    """A client that loads vLLM while the server does."""
    with Client(str(timing_30m), 1024) as one:
        yield one


@pytest.fixture(scope="module")
def given(timing_30m: Path, client: Client) -> Iterator[Server]:
    """A server whose first port was taken by somebody else in the meantime."""
    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    taken = other.server_address[1]
    ports, free = [taken], server.free_port
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "free_port", lambda: ports.pop() if ports else free())
        args = ["--load-format", "dummy", "--enforce-eager", *ARGS]
        one = Server("given", str(timing_30m), args)
        assert one.url.endswith(f":{taken}")
        try:
            one.wait_healthy()
            assert not one.url.endswith(f":{taken}")
            other.shutdown()
            other.server_close()
            yield one
        finally:
            family = descendants(one._keeper.pid)
            one.stop()
            assert gone(family)


def descendants(pid: int) -> list[int]:
    """Return a process and all that it started, by the parents that /proc names."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(state[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


class Comparer:
    """`chunkwise compare` as a user runs it; what it says is read line by line."""

    def __init__(self, *args: str):
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "chunkwise", "compare", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        )

    def until(self, pattern: str) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.append(line)
            if re.search(pattern, line):
                return
        pytest.fail(f"never said {pattern!r}: {''.join(self.said)}")

    def family(self) -> list[int]:
        return descendants(self.process.pid)

    def end(self) -> tuple[int, str]:
        rest, _ = self.process.communicate(timeout=300)
        return self.process.returncode, "".join(self.said) + rest


def api_server(pids: list[int]) -> int:
    for pid in pids:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"api_server" in command and b"chunkwise.lab.keeper" not in command:
            return pid
    pytest.fail("no server among the comparer's processes")


def kept(file: Path) -> list[tuple[str, int]]:
    return [(run.arm, run.round) for run in runs.read(file)[1]]


def test_the_client_sends_on_time_and_counts_every_token(given: Server, client: Client) -> None:
    requests = [Request(0.2 * n, 30 + n, 5 + n, "chat") for n in range(6)]
    machine = client.start(lambda text, done: None)
    assert machine.context == 1024
    assert "max_num_seqs" in machine.accepted
    found = client.play(given.url, given.model, requests, salt="a")
    at_once = client.play(given.url, given.model, requests, salt="b", users=2)
    wrong = client.play(given.url, "another-model", requests, salt="c", users=2)
    assert found is not None
    assert at_once is not None
    assert wrong is not None
    for one in (found, at_once):
        assert one.failed == {}
        assert one.measured.prompt_tokens.tolist() == [30, 31, 32, 33, 34, 35]
        assert one.measured.token_counts.tolist() == [5, 6, 7, 8, 9, 10]
    assert found.measured.arrival == pytest.approx([0.2 * n for n in range(6)], abs=0.15)
    assert (np.abs(found.lag) < 0.15).all()
    assert at_once.lag.tolist() == [0.0] * 6
    assert wrong.failed == {"Not Found": 6}
    assert len(wrong.measured) == 0


def test_a_server_that_never_gets_healthy(timing_30m: Path) -> None:
    slow = Server("slow", str(timing_30m), ["--load-format", "dummy"])
    time.sleep(1)
    family = descendants(slow._keeper.pid)
    assert len(family) >= 2
    with pytest.raises(EngineTrouble, match=r"`slow` was not healthy after 1.00s.*log is"):
        slow.wait_healthy(patience=1.0)
    assert gone(family)


def test_kills_and_resumes(
    given: Server, timing_30m: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "lengths.jsonl"
    trace.write_text('{"prompt_tokens": 40, "output_tokens": 30}\n' * 50)
    file = tmp_path / "runs.jsonl"
    ours = "own=--max-num-batched-tokens 256"
    first = Comparer(
        *(str(trace), "--model", str(timing_30m), "--arm", ours, "--arm", f"given={given.url}"),
        *("--baseline", "given", "--server", " ".join(ARGS), "--rate", "4"),
        *("--requests", str(REQUESTS), "--rounds", str(ROUNDS), "--out", str(file)),
    )
    # A server is killed in mid-run: its run is thrown away, another server is started.
    first.until("Round 1 of at most 2: own")
    time.sleep(1)
    old = first.family()
    os.kill(api_server(old), signal.SIGKILL)
    first.until("The server of own is lost")
    assert ("own", 0) not in kept(file)
    first.until("Round 1 of at most 2: own")
    # The comparer itself is killed in mid-run: nothing is left of it, the runs are.
    first.until("Round 1 of at most 2: given")
    time.sleep(0.5)
    before = kept(file)
    assert before == [("own", 0)]
    family = first.family()
    assert len(family) > 4
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.communicate()
    assert gone([*old, *family], seconds=20)
    assert kept(file) == before

    # Half a line, as a break leaves it; then Ctrl-C in mid-run, while a server starts.
    with file.open("a") as torn:
        torn.write('{"arm":"own","rou')
    copy = tmp_path / "copy.jsonl"
    shutil.copy(file, copy)
    monkeypatch.setattr(server, "PATIENCE", 1.0)
    with ThreadPoolExecutor(1) as beside:
        # Beside it, on a copy: the server never gets healthy.
        impatient = beside.submit(lab.resume, copy, lambda text, done: None)
        second = Comparer("--resume", str(file))
        second.until("Round 1 of at most 2: given")
        time.sleep(0.5)
        family = second.family()
        second.process.send_signal(signal.SIGINT)
        code, said = second.end()
        assert code == 130
        assert f"--resume {file}" in said
        assert gone(family, seconds=20)
        assert kept(file)[: len(before)] == before
        # A sentence, and what there was stays.
        with pytest.raises(EngineTrouble, match="`own` was not healthy"):
            impatient.result(120)
    assert kept(copy)[: len(before)] == before

    code, said = (third := Comparer("--resume", str(file))).end()
    assert code == 0, said
    assert gone([third.process.pid])
    arms = {"given", "given again", "own"}
    assert sorted(kept(file)) == sorted((arm, n) for arm in arms for n in range(ROUNDS))
    for run in runs.read(file)[1]:
        assert run.failed == {}
        assert len(run.measured) == len(run.lag) == REQUESTS
    # Nothing is left to do: the result is shown again, at once.
    assert Comparer("--resume", str(file)).end()[0] == 0
