"""A simulation in a file, to hand it from the process that loads vLLM to the one that shows it.

Plain columns of numbers (`.npz`, no pickle), and the reasons as JSON.
"""

import json
from dataclasses import fields
from pathlib import Path

import numpy as np

from chunkwise.measured import Measured
from chunkwise.sim.record import Simulation, Steps


def save(simulation: Simulation, path: Path) -> None:
    """Write the columns. Usage: `save(simulation, Path("run.npz"))`."""
    measured = simulation.measured
    words = {
        "refused": {str(number): reason for number, reason in simulation.refused.items()},
        "classes": measured.classes,
        "notes": simulation.notes,
    }
    np.savez(
        path,
        arrival=measured.arrival,
        prompt_tokens=measured.prompt_tokens,
        token_counts=measured.token_counts,
        token_times=measured.token_times,
        cached_tokens=simulation.cached_tokens,
        words=np.frombuffer(json.dumps(words).encode(), dtype=np.uint8),
        **{f"step_{field.name}": getattr(simulation.steps, field.name) for field in fields(Steps)},
    )


def load(path: Path) -> Simulation:
    """Read what `save` wrote."""
    with np.load(path, allow_pickle=False) as found:
        words = json.loads(found["words"].tobytes())
        classes = words["classes"]
        return Simulation(
            Measured(
                found["arrival"],
                found["prompt_tokens"],
                found["token_counts"],
                found["token_times"],
                None if classes is None else tuple(classes),
            ),
            Steps(*(found[f"step_{field.name}"] for field in fields(Steps))),
            found["cached_tokens"],
            {int(number): reason for number, reason in words["refused"].items()},
            tuple(words["notes"]),
        )
