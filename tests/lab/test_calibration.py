"""The designed mix on a real engine, and the command that runs it."""

import json
from pathlib import Path

import pytest
from tests.conftest import Run

from chunkwise.cost.fitted import errors
from chunkwise.lab.calibrate import checked_fit, from_run
from chunkwise.lab.child import Child

pytestmark = pytest.mark.engine


def test_a_mix_is_varied_and_the_same_when_run_again(timing_30m: Path) -> None:
    again = {"seed": 3, "blocks": 4}
    spec = {"model": str(timing_30m), "rounds": [again, {"seed": 4, "blocks": 4}, again]}
    with Child("chunkwise.lab.calibration:run", spec) as child:
        engine, *rounds = child.events()
    first, other, second = ([step[:3] for step in round_["steps"]] for round_ in rounds)
    assert first == second
    assert first != other
    chunks = [chunk for step in first for chunk in step[0]]
    assert len({tokens for tokens, _ in chunks}) > 20
    assert max(context for _, context in chunks) > 10 * min(tokens for tokens, _ in chunks)
    assert len({step[1] for step in first}) >= 4  # crowds of different sizes
    assert any(len(step[0]) > 1 for step in first)
    assert any(step[1] and not step[0] for step in first)
    assert all(step[3] > 0 for round_ in rounds for step in round_["steps"])
    cost = checked_fit(from_run([engine, rounds[0], rounds[1]]))
    off = abs(errors(cost, from_run([engine, rounds[2]]).timed))
    assert sorted(off)[len(off) // 2] < 0.5  # a shared machine: the benchmark says how good it is


def test_the_command_measures_and_says_what_a_target_buys(
    chunkwise: Run, timing_30m: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.json"
    done = chunkwise(
        *("calibrate", "--run", str(timing_30m), "--for", "8s", "--save", str(kept), "--json")
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["vllm"]
    assert content["seconds"]["token"] > 0
    assert len(content["buys"]) == 4
    assert json.loads(kept.read_text())["key"]["vllm"] == content["vllm"]
