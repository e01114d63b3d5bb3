"""Servers that die: once is forgiven, and what they touched is thrown away.

The servers and the client are stand-ins here, to provoke the faults; real ones
are killed in `test_compare_faults.py`.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chunkwise.errors import EngineTrouble
from chunkwise.lab import fleet as fleets
from chunkwise.lab import runs
from chunkwise.lab.arms import parse
from chunkwise.lab.fleet import Fleet
from chunkwise.lab.load import Played
from chunkwise.lab.rounds import Lab
from chunkwise.lab.source import open_source
from chunkwise.measured import Measured

pytestmark = pytest.mark.slow

LOAD = {"requests": 4, "rate": 2.0, "users": None, "seed": 0}
ARMS = {"a": parse("a=--max-num-seqs 8"), "b": parse("b=--max-num-seqs 9")}
ASKED = {
    "arms": {name: arm.to_json() for name, arm in ARMS.items()},
    "rule": {"least_rounds": 1, "most_rounds": 2, "precision": 0.05, "seconds": 600.0},
}


class FakeServer:
    log: list[str] = []  # noqa: RUF012

    def __init__(self, name: str, model: str, args: Any, environment: Any):
        self.name, self.url, self.model = name, f"http://{name}", model
        self.answers = True
        self.log.append(f"start {name}")

    def wait_healthy(self) -> None:
        self.log.append(f"healthy {self.name}")

    def death(self, what: str) -> EngineTrouble:
        return EngineTrouble(f"The server of `{self.name}` {what}.")

    def stop(self, keep_log: bool = False) -> None:
        self.log.append(f"stop {self.name}")


class FakeClient:
    """Answers everything, but runs with these numbers lose their server."""

    def __init__(self, fleet: Fleet, deaths: set[int]):
        self.fleet, self.deaths, self.count = fleet, deaths, 0

    def play(self, url: str, model: str, requests: Any, **more: Any) -> Played:
        warm_up = more["users"] is not None
        FakeServer.log.append(f"{'warm' if warm_up else 'run'} {url.removeprefix('http://')}")
        failed = {}
        if not warm_up:
            self.count += 1
            if self.count in self.deaths:
                self.fleet._up[url.removeprefix("http://")].answers = False  # type: ignore[misc]
                failed = {"ClientOSError": 4}
        measured = Measured.of([0.0], [[0.1, 0.2]], [5])
        return Played(measured, np.zeros(1), failed)


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "Server", FakeServer)
    FakeServer.log = []


def play(file: Path, deaths: set[int], together: bool, rounds_a_turn: int = 1) -> None:
    asked = {**ASKED, "rounds_a_turn": rounds_a_turn}
    runs.begin(file, asked)
    with Fleet("m", (), together) as fleet:
        client: Any = FakeClient(fleet, deaths)
        lab = Lab(client, fleet, open_source("mixed", "m"), LOAD, lambda text, done: None)
        lab.rounds(file, asked, [], lambda asked, done: False, time.monotonic())


def test_one_at_a_time_restarts_and_warms_up_every_turn(tmp_path: Path) -> None:
    play(tmp_path / "r.jsonl", set(), together=False)
    turn = ["start {0}", "healthy {0}", "warm {0}", "run {0}", "stop {0}"]
    # The second round is b, a: b's server is still up and warm, and stays.
    expected = [line.format("a") for line in turn] + [line.format("b") for line in turn[:-1]]
    expected += ["run b", "stop b"] + [line.format("a") for line in turn]
    assert FakeServer.log == expected


def test_a_turn_of_several_rounds_starts_once(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    play(file, set(), together=False, rounds_a_turn=2)
    assert [line for line in FakeServer.log if line.startswith("start")] == ["start a", "start b"]
    found = [(run.arm, run.round, run.place) for run in runs.read(file)[1]]
    assert found == [("a", 0, 0), ("a", 1, 0), ("b", 0, 1), ("b", 1, 1)]


def test_together_they_stay_up(tmp_path: Path) -> None:
    play(tmp_path / "r.jsonl", set(), together=True)
    assert FakeServer.log[:2] == ["start a", "start b"]
    assert FakeServer.log.count("warm a") == 1
    assert [line for line in FakeServer.log if line.startswith("run")] == [
        "run a",
        "run b",
        "run b",
        "run a",
    ]
    assert sorted(FakeServer.log[-2:]) == ["stop a", "stop b"]


def test_a_death_is_forgiven_once_and_its_run_thrown_away(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    play(file, {2}, together=True)
    found = runs.read(file)[1]
    assert [(run.arm, run.round) for run in found] == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]
    assert all(not run.failed for run in found)
    assert FakeServer.log.count("start b") == 2
    assert FakeServer.log.count("warm b") == 2


def test_the_second_death_ends_it_and_the_runs_stay(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    with pytest.raises(EngineTrouble, match="`b` died in mid-run"):
        play(file, {2, 3}, together=True)
    assert [(run.arm, run.round) for run in runs.read(file)[1]] == [("a", 0)]
    assert FakeServer.log.count("start b") == FakeServer.log.count("stop b") == 2
    assert FakeServer.log[-1] == "stop a"
