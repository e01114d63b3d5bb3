"""The comparison of the guide: default, off and best-static on the mixed workload.

Runs `chunkwise compare` on this machine's CPU with a small model of random
weights (how long a step takes depends on its shape alone) and writes the runs to
`benchmarks/results/compare-mixed.jsonl`, and what the guide shows of them beside it.

Usage: python benchmarks/compare_mixed.py
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import compare_page

from chunkwise.lab.models import timing_model

RESULTS = Path(__file__).resolve().parent / "results"
ARGS = [
    *("mixed", "--arm", "default", "--arm", "off", "--arm", "best-static"),
    *("--rate", "0.8", "--requests", "20", "--ttft", "2s", "--itl", "100ms"),
    *("--rounds", "5", "--time-limit", "20m"),
]


def main() -> None:
    # A place of its own, so that the command in the file reads the same everywhere.
    home = Path(tempfile.mkdtemp(prefix="compare-mixed-"))
    (home / "timing-30m").symlink_to(timing_model("30m"))
    command = ["chunkwise", "compare", *ARGS, "--model", "./timing-30m", "--out", "runs.jsonl"]
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", *command], check=False, cwd=home)
    if done.returncode:
        sys.exit(f"Ended with {done.returncode}; the runs are in {home}, to go on with --resume.")
    minutes = (time.monotonic() - began) / 60
    runs = RESULTS / "compare-mixed.jsonl"
    shutil.move(home / "runs.jsonl", runs)
    compare_page.main(runs)
    with runs.with_suffix(".txt").open("a") as shown:
        shown.write(f"Total time, the search and all starts included: {minutes:.0f} minutes.\n")


if __name__ == "__main__":
    main()
