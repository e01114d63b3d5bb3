"""Pacing against the simple rules that people know: capacity of each, in the simulator.

The method is that of `pacing_capacity.py`, whose runs it shares: the highest rate
that keeps its promise, as a share of the saturation rate. "Halve or double" halves
the step's budget when a step beside answers passed the target and doubles it when
one took less than half; "by load" gives prompts 64, 128 or 256 tokens a step, the
fewer the more requests generate; "fixed" is vLLM's own budget at its default.

Usage: python benchmarks/pacing_rules.py TRACES [WORKLOAD …]
"""

import sys

from pacing_capacity import DEFAULT, PACED, RESULTS, Cell
from pacing_cells import ENGINES

ARMS = {
    "fixed": (DEFAULT, 0.1),
    "by load": ({"rule": "ByLoadScheduler"}, 0.3),
    "halve or double": ({"rule": "HalvingScheduler"}, 0.3),
    "paced": (PACED, 0.9),
}


def main() -> None:
    engine = ENGINES[0]
    lines = [
        f"{engine.name}: capacity ÷ saturation.",
        "",
        f"| workload | {' | '.join(ARMS)} |",
        "|---|" + "---:|" * len(ARMS),
    ]
    for workload in sys.argv[2:] or ["code"]:
        place = RESULTS / f"pacing-capacity-{engine.system}{engine.tp}-{workload}.jsonl"
        cell = Cell((sys.argv[1], engine, workload, False, str(place), float("inf")))
        cell.saturation = cell.saturated()["rate"]
        found = [cell.capacity(arm, guess) for arm, guess in ARMS.values()]
        lines.append(f"| {workload} | {' | '.join(f'{share:.3f}' for share in found)} |")
        print(lines[-1], flush=True)
    (RESULTS / "pacing-rules.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
