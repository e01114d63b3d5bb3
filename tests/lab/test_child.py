"""The child process: what it says arrives, and nothing of it is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chunkwise.errors import EngineTrouble, UserMistake
from chunkwise.lab.child import Child

JOBS = "jobs_for_tests"


@pytest.fixture(autouse=True)
def _jobs_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    path = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(part for part in path if part))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def gone(pids: list[int], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(alive(pid) for pid in pids)


def test_reports_arrive_and_noise_goes_to_the_log() -> None:
    said: list[tuple[str, float]] = []
    with Child(f"{JOBS}:echo", {"x": 1}) as child:
        events = list(child.events(lambda text, done: said.append((text, done))))
    assert events == [{"x": 1}]
    assert said == [("half way", 0.5)]
    assert "noise on stdout" in child.log.read_text()


def test_log_is_removed_when_nobody_wants_it() -> None:
    with Child(f"{JOBS}:echo", {}, keep_log=False) as child:
        child.result()
    assert not child.log.exists()


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("mistake", UserMistake, "You gave the wrong thing."),
        ("trouble", EngineTrouble, "The machine is too small. The log is"),
        ("known", EngineTrouble, "The KV cache does not fit"),
        ("bug", EngineTrouble, "ended with exit code 1"),
        ("kill", EngineTrouble, "for want of memory"),
        ("exit", EngineTrouble, "ended with exit code 7"),
    ],
)
def test_failures_are_sentences(how: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as caught, Child(f"{JOBS}:fail", {"how": how}) as child:
        child.result()
    if how != "mistake":
        assert str(child.log) in str(caught.value)


def test_nothing_survives_an_exception() -> None:
    pids: list[int] = []

    def interrupted() -> None:
        with Child(f"{JOBS}:family", {}) as child:
            pids.extend(next(child.events())["pids"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(pids) == 2
    assert gone(pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_survives_a_killed_parent(number: signal.Signals) -> None:
    code = (
        "import json, time\n"
        "from chunkwise.lab.child import Child\n"
        f"with Child('{JOBS}:family', {{}}) as child:\n"
        "    print(json.dumps(next(child.events())['pids']), flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout
    pids = json.loads(parent.stdout.readline())
    assert all(alive(pid) for pid in pids)
    parent.send_signal(number)
    parent.wait()
    parent.stdout.close()
    assert gone(pids)
