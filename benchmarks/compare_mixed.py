"""The comparison of the guide: default, off and best-static on the mixed workload.

Runs `chunkwise compare` on this machine's CPU with a small model of random
weights (how long a step takes depends on its shape alone) and writes the runs,
the tables and the page to `benchmarks/results/compare-mixed.*`.

Usage: python benchmarks/compare_mixed.py
"""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from chunkwise.durations import say
from chunkwise.lab.models import timing_model

RESULTS = Path(__file__).resolve().parent / "results"
ARGS = [
    *("mixed", "--arm", "default", "--arm", "off", "--arm", "best-static"),
    *("--rate", "0.8", "--requests", "32", "--ttft", "2s", "--itl", "100ms"),
    *("--rounds", "6", "--time-limit", "20m"),
]


def main() -> None:
    runs = RESULTS / "compare-mixed.jsonl"
    page = RESULTS / "compare-mixed.html"
    command = ["chunkwise", "compare", *ARGS, "--model", str(timing_model("30m"))]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", *command, "--out", str(runs), "--html", str(page)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "110"},
    )
    if done.returncode:
        sys.exit(f"Ended with {done.returncode}; go on with --resume {runs}.")
    shown = shlex.join(["chunkwise", "compare", *ARGS, "--model", "timing-30m"])
    took = say(time.monotonic() - began)
    (RESULTS / "compare-mixed.txt").write_text(f"$ {shown}\n\n{done.stdout}\nTotal time: {took}\n")


if __name__ == "__main__":
    main()
