"""On real servers: does a comparison find a planted 15%, and claim nothing of equals?

Two comparisons of `default` with the same settings under another name, and with a
server whose every step lasts 15% longer (`slow_scheduler.py`); printed is what
was claimed.
Usage: python benchmarks/compare_real.py > benchmarks/results/compare-real.txt
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chunkwise.lab.models import timing_model

HERE = Path(__file__).resolve().parent
ROUNDS = 50
REQUESTS = 30
# Short runs in many rounds: the machine's moods last longer than a run. A core is left for HTTP.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
ARGS = [
    *("--arm", "default", "--arm", "same=--max-num-batched-tokens 2048"),
    *("--arm", "slow=--scheduler-cls slow_scheduler.Slow"),
    *("--users", "4", "--requests", str(REQUESTS), "--rounds", str(ROUNDS)),
    *("--time-limit", "15m", "--json"),
]


def main() -> None:
    print(f"{ROUNDS} rounds of {REQUESTS} requests by 4 users; 15% planted in `slow`\n")
    for number in (1, 2):
        began = time.monotonic()
        found = comparison()
        minutes = (time.monotonic() - began) / 60
        print(f"Comparison {number} ({found['rounds']} rounds, {minutes:.0f} minutes)")
        for arm in ("same", "slow"):
            effects = [one for one in found["effects"] if one["arm"] == arm]
            claims = [one for one in effects if one["verdict"] in ("better", "worse")]
            print(f"  {arm}: {len(claims)} of {len(effects)} metrics claimed")
            for one in (one for one in effects if one["change"] is not None):
                print(
                    f"    {one['label']}: {one['verdict']}, {one['change']:.2f}x "
                    f"({one['low']:.2f} to {one['high']:.2f})"
                )
        print(flush=True)


def comparison() -> dict:
    with tempfile.TemporaryDirectory() as home:
        trace = Path(home) / "chat.jsonl"
        rows = [
            {"timestamp": n, "input_length": 100 + 20 * (n % 5), "output_length": 16}
            | {"hash_ids": [n]}
            for n in range(200)
        ]
        trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
        inherited = os.environ.get("PYTHONPATH", "")
        command = [sys.executable, "-m", "chunkwise", "compare", str(trace), *ARGS]
        done = subprocess.run(
            [*command, "--model", str(timing_model("30m")), "--out", f"{home}/runs.jsonl"],
            check=True,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": f"{HERE}:{inherited}"},
        )
        return json.loads(done.stdout)


if __name__ == "__main__":
    main()
