"""What is shown of a simulation: the same facts everywhere, and nothing from outside."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from chunkwise.errors import UserMistake
from chunkwise.measured import Measured
from chunkwise.report.simulate import show
from chunkwise.report.simulate_facts import facts
from chunkwise.report.simulate_html import page
from chunkwise.report.trace_events import events, write_trace
from chunkwise.sim import kept
from chunkwise.sim.record import Simulation, Steps
from chunkwise.slo import Slo

MEAN = "<script>alert(1)</script>[bold]"
MACHINE = {
    "model": MEAN,
    "device": "h100_sxm",
    "tensor_parallel": 1,
    "replicas": 2,
    "settings": {"max_num_batched_tokens": 2048},
    "kv_tokens": 1000,
    "source": "silicon",
    "notes": ["a note"],
}


@pytest.fixture
def simulation() -> Simulation:
    """Two requests served, one refused; three steps, one of each kind."""
    steps = Steps.of(
        [
            (0.0, 0.5, 0.25, 100, 1, 0, 0, 1, 1, 0),
            (0.5, 1.5, 0.5, 50, 1, 1, 100, 2, 0, 1),
            (1.5, 1.75, 0.5, 0, 0, 2, 151, 2, 0, 0),
        ]
    )
    measured = Measured.of(
        [0.0, 0.25, 0.5], [[0.5, 1.5, 1.75], [1.5, 1.75], []], [100, 50, 9000], ["a", "b", "a"]
    )
    return Simulation(measured, steps, np.array([16, 0, 0]), {2: "too long"}, ("noted",))


def test_facts(simulation: Simulation) -> None:
    content = facts(simulation, MACHINE, Slo(ttft=1.0, itl=1.1))
    assert (content["requests"], content["served"]) == (3, 2)
    assert content["refused"] == [{"requests": 1, "reason": "too long"}]
    assert content["ttft"]["max"] == 1.25
    assert content["gap"]["p50"] == 0.25
    assert content["goodput_share"] == pytest.approx(1 / 3)
    assert content["preemptions"] == 1
    assert content["notes"] == ["noted"]
    kinds = content["steps"]["kinds"]
    assert {name: kind["steps"] for name, kind in kinds.items()} == {
        "decode only": 1,
        "mixed": 1,
        "prefill only": 1,
    }
    assert kinds["mixed"]["time_share"] == pytest.approx(1 / 1.75)
    json.dumps(content, allow_nan=False)


def test_nobody_served_is_still_shown(capsys: pytest.CaptureFixture[str]) -> None:
    none = Simulation(
        Measured.of([0.0], [[]], [10]), Steps.of([]), np.zeros(1, dtype=np.int64), {0: "no room"}
    )
    content = facts(none, MACHINE, None)
    json.dumps(content, allow_nan=False)
    show(content)
    assert "no room" in capsys.readouterr().out


def test_the_page_is_text_and_loads_nothing(simulation: Simulation) -> None:
    text = page(simulation, facts(simulation, MACHINE, None))
    body = text[text.index("<body>") :]
    assert MEAN not in body
    assert "default-src 'none'" in text
    outside = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"<[^>]*(?:src|href)\s*=", outside)
    for title in ("Steps over time", "First token", "Gaps"):
        assert title in body


def test_the_trace_has_every_step_in_microseconds(simulation: Simulation, tmp_path: Path) -> None:
    spans = [event for event in events(simulation) if event["ph"] == "X"]
    assert [event["name"] for event in spans] == ["prefill only", "mixed", "decode only"]
    assert [(event["ts"], event["dur"]) for event in spans][1] == (500_000, 1_000_000)
    write_trace(tmp_path / "a.json", simulation)
    assert len(json.loads((tmp_path / "a.json").read_text())["traceEvents"]) == 11
    with pytest.raises(UserMistake, match="Cannot write"):
        write_trace(tmp_path / "none" / "a.json", simulation)


def test_columns_survive_a_file(simulation: Simulation, tmp_path: Path) -> None:
    kept.save(simulation, tmp_path / "run.npz")
    found = kept.load(tmp_path / "run.npz")
    assert found.refused == simulation.refused
    assert found.notes == ("noted",)
    assert found.measured.classes == ("a", "b", "a")
    assert found.measured.token_times.tolist() == simulation.measured.token_times.tolist()
    assert found.steps.kv_use.tolist() == simulation.steps.kv_use.tolist()
