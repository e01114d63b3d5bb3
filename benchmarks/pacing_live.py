"""Pacing on a real engine: vLLM's default, the best fixed settings, paced, by the lab.

Chat among which 12% of the prompts have 3,000 to 7,000 tokens, on this machine's CPU
with a small model of random weights (how long a step takes depends on its shape alone).

1. The ground, on an idle default server: how long a decode step takes (the inter-token
   target is four times that), how long a long prompt takes alone, and how many requests
   a second the server manages when pressed (two thirds of that is the load).
2. A grid of fixed budgets and thresholds, once, and its better half again.
3. The best of them, default and paced take turns on the same requests, in a balanced
   order, until the time is over; the best one twice, which shows the noise.

A paced server begins from nothing and has the warm-up that every arm has. Runs are on
disk as soon as they are done: --resume goes on with part 3 after a break.

Usage: python benchmarks/pacing_live.py [--minutes 20] [--model 30m] [--resume]
"""

import argparse
import json
import os
import sys
import tempfile
import time
import uuid
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import numpy as np
import pacing_live_page as page

# One thread for the engine, in one process: the other core is for HTTP and the client.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
KV = ("--kv-cache-memory-bytes", str(2**30))
COMMON = ("--load-format", "dummy", "--enforce-eager", *KV)
GRID = [(128, 0), (256, 0), (256, 128), (512, 0), (512, 256), (1024, 0), (2048, 256)]
LOAD = 0.65  # of what the default server manages when pressed
PRESSING, PRESSED = 16, 48  # users at once, and their requests
TIMES_IDLE, TTFT = 4, 2.0
SCREENING_SEED, WARM_UP_SEED = 1_000_000, 2_000_000  # no round's


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--minutes", type=float, default=20.0, help="in all")
    asked.add_argument("--model", choices=("30m", "130m"), default="30m")
    asked.add_argument("--requests", type=int, default=40, help="in a run")
    asked.add_argument("--out", type=Path, default=page.RESULTS, help="folder of the results")
    asked.add_argument("--resume", action="store_true", help="go on with part 3")
    given = asked.parse_args()
    began = time.monotonic()
    os.environ.update(ONE_THREAD)
    from chunkwise.lab import compare, models
    from chunkwise.report.terminal import progress

    out = given.out.resolve()
    found, runs = out / "pacing-live.json", out / "pacing-live.jsonl"
    name = f"timing-{given.model}"
    # A place of its own, so that the files read the same everywhere.
    with tempfile.TemporaryDirectory() as home, chdir(home), progress() as say:
        Path(name).symlink_to(models.timing_model(given.model))
        if given.resume:
            compare.resume(runs, say, never)
        else:
            prepared = prepare(name, given.requests, say)
            found.write_text(json.dumps(prepared, indent=1) + "\n")
            runs.unlink(missing_ok=True)
            left = given.minutes * 60 - (time.monotonic() - began)
            compare.begin(question(prepared, name, given.requests, left), runs, say, never)
    page.main(out)


def never(asked, done) -> bool:
    """Rounds go on until the time is over, however narrow the intervals are."""
    return False


def question(prepared: dict, model: str, requests: int, seconds: float):
    from chunkwise.lab.arms import parse
    from chunkwise.lab.compare import Question
    from chunkwise.slo import Slo

    best = prepared["best"]
    return Question(
        command=("python", "benchmarks/pacing_live.py"),
        model=model,
        place="mixed",
        arms=(parse(best), parse("default"), parse("paced")),
        baseline=best,
        rule={"least_rounds": 2, "most_rounds": 1000, "precision": 0.05, "seconds": seconds},
        requests=requests,
        rate=prepared["rate"],
        slo=Slo(ttft=TTFT, itl=prepared["itl"]),
        server_args=KV,
    )


# --- before the rounds --------------------------------------------------------------


def prepare(model: str, requests: int, say) -> dict:
    """Measure the ground and the grid."""
    from chunkwise.lab.arms import parse, static
    from chunkwise.lab.fleet import Fleet
    from chunkwise.lab.load import Client
    from chunkwise.lab.source import open_source

    with Client(model) as client, Fleet(model, COMMON, together=True) as fleet:
        machine = client.start(say)
        source = open_source("mixed", model).fitting(machine.context)
        default = parse("default")
        field = [default, *(static(*pair, machine) for pair in GRID)]
        say(f"Starting {len(field)} servers", 0.0)
        for arm in field:
            fleet.begin(arm)

        def warm_up(server) -> None:
            drawn = source.round(PRESSING, WARM_UP_SEED, None, PRESSING)
            send(client, server, [replace(one, output_tokens=32) for one in drawn], PRESSING)

        # All are up before anything is measured: a start takes a whole core.
        servers = {arm.name: fleet.ready(arm, warm_up) for arm in field}
        say("Measuring the idle server, and one pressed", 0.0)
        found = ground(lambda *asked: send(client, servers["default"], *asked), source)
        drawn = [
            source.round(requests, SCREENING_SEED + number, found["rate"], None)
            for number in range(2)
        ]
        shares: dict[str, list[float]] = {arm.name: [] for arm in field}
        stalls: dict[str, list[float]] = {arm.name: [] for arm in field}
        left = [arm.name for arm in field]
        for played in drawn:
            for name in left:
                say(f"Screening {name}", 0.0)
                seen = send(client, servers[name], played)
                shares[name].append(float(page.good(seen, found).mean()))
                stalls[name].append(float(seen.stall_seconds(found["itl"]).sum()))
            left = sorted(left, key=lambda one: rank(shares[one], stalls[one]))
            left = left[: (len(left) + 1) // 2]
    fixed = [name for name in shares if name != "default"]
    most = max(len(shares[name]) for name in fixed)
    finalists = [name for name in fixed if len(shares[name]) == most]
    best = min(finalists, key=lambda one: rank(shares[one], stalls[one]))
    grid = [
        {"settings": name, "goodput_shares": shares[name], "stall_seconds": stalls[name]}
        for name in shares
    ]
    return {**found, "requests": requests, "best": best, "grid": grid}


def rank(shares: list[float], stalls: list[float]) -> tuple[float, float]:
    """Sort the best first: most requests as promised, then least time lost in stalls."""
    return (-float(np.mean(shares)), float(np.mean(stalls)))


def ground(send_to, source) -> dict:
    """Measure an idle server, long prompts alone, and what a pressed server manages."""
    from chunkwise.lab.load import Request

    idle = send_to([Request(0.0, 64, 200)] * 3, 1).gaps
    lengths = [3_000, 5_000, 7_000]
    alone = send_to([Request(0.0, length, 2) for length in lengths * 2], 1).ttft
    pressed = send_to(source.round(PRESSED, WARM_UP_SEED + 1, None, PRESSING), PRESSING)
    saturation = len(pressed) / pressed.seconds
    step = float(np.median(idle))
    return {
        "idle_step": step,
        "idle_worst_gap": float(idle.max()),
        "itl": round(TIMES_IDLE * step, 3),
        "ttft": TTFT,
        "lengths": lengths,
        "alone": alone.reshape(2, -1).mean(axis=0).tolist(),
        "saturation": saturation,
        "rate": round(LOAD * saturation, 2),
    }


def send(client, server, requests, users: int | None = None):
    """Play requests and return what came; nothing may fail here."""
    found = client.play(server.url, server.model, requests, users=users, salt=uuid.uuid4().hex)
    if found is None or found.failed:
        sys.exit(f"{server.name}: {found and found.failed}")
    return found.measured


if __name__ == "__main__":
    main()
