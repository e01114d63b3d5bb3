"""The first seconds of a simulation as a trace file that Perfetto and Chrome open.

The format is the Trace Event Format: one object a step ("X", with a duration in
microseconds), and counters ("C") for who runs, who waits and how full the KV is.
"""

import json
from pathlib import Path
from typing import Any

from chunkwise.errors import UserMistake
from chunkwise.report.simulate_facts import KINDS, kind_of
from chunkwise.sim.record import Simulation

SECONDS = 60.0
MOST_STEPS = 20_000


def write_trace(path: Path, simulation: Simulation) -> None:
    """Write the file. Usage: `write_trace(Path("run.trace.json"), simulation)`."""
    text = json.dumps({"traceEvents": events(simulation), "displayTimeUnit": "ms"})
    try:
        path.write_text(text)
    except OSError as error:
        raise UserMistake(f"Cannot write {path}: {error.strerror or error}.") from None


def events(simulation: Simulation) -> list[dict[str, Any]]:
    """Return the events of the first seconds."""
    steps, kinds = simulation.steps, kind_of(simulation.steps).tolist()
    found: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "engine (simulated)"}},
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "steps"}},
    ]
    first = float(steps.start[0]) if len(steps) else 0.0
    for step in range(min(len(steps), MOST_STEPS)):
        start = float(steps.start[step]) - first
        if start > SECONDS:
            break
        at = round(start * 1e6, 3)
        carried = {
            "prefill tokens": int(steps.prefill_tokens[step]),
            "chunks": int(steps.chunks[step]),
            "decodes": int(steps.decodes[step]),
            "decode context": int(steps.decode_context[step]),
        }
        found.append(
            {
                "name": KINDS[kinds[step]],
                "ph": "X",
                "ts": at,
                "dur": round(float(steps.end[step] - steps.start[step]) * 1e6, 3),
                "pid": 1,
                "tid": 1,
                "args": carried,
            }
        )
        requests = {"running": int(steps.running[step]), "waiting": int(steps.waiting[step])}
        found.append({"name": "requests", "ph": "C", "ts": at, "pid": 1, "args": requests})
        share = {"share": round(float(steps.kv_use[step]), 4)}
        found.append({"name": "KV cache", "ph": "C", "ts": at, "pid": 1, "args": share})
    return found
