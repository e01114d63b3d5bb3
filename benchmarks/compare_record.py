"""Record real runs for `compare_power.py`: three equal servers, taking turns.

Three processes hold one vLLM engine each (the 30M timing model on the CPU, default
settings). In every round each of them runs the same requests once, in an order that
rotates: chat among which one prompt in eight is long, arriving at random (Poisson).
What is kept is what `chunkwise compare` keeps of a run: when each token came.

The machine that recorded is shared, so what else it did is kept out: a step takes as
long as the processor worked on it for this engine (one thread), and the three take turns
of a tenth of a second within a run.

Usage: .venv/bin/python benchmarks/compare_record.py
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

RESULT = Path(__file__).parent / "results" / "compare-recorded.jsonl"
SERVERS = ("a", "b", "c")
ROUNDS, REQUESTS, RATE = 24, 24, 6.0  # requests a second
TURN = 0.1  # seconds
CHAT, LONG, LONG_EVERY, OUTPUT = (20, 200), (1000, 2000), 8, 12
QUIET = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    # One thread, free to move: two that wait for each other measure the machine's other users.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


def main() -> None:
    from chunkwise.lab import runs
    from chunkwise.measured import Measured

    servers = {name: start(name) for name in SERVERS}
    play(servers, -1)  # warm-up
    RESULT.unlink(missing_ok=True)
    runs.begin(
        RESULT,
        {
            "command": ["python", "benchmarks/compare_record.py"],
            "model": "timing-30m",
            "arms": {name: {"said": "default", "settings": []} for name in SERVERS},
        },
    )
    for number in range(ROUNDS):
        turn = number % len(SERVERS)
        order = {name: servers[name] for name in SERVERS[turn:] + SERVERS[:turn]}
        for place, (name, found) in enumerate(play(order, number).items()):
            measured = Measured.of(*(found[key] for key in ("arrival", "tokens", "prompts")))
            runs.add(RESULT, runs.Run(name, number, place, measured, np.zeros(len(measured))))
        print(f"round {number + 1} of {ROUNDS}", file=sys.stderr)
    for process in servers.values():
        process.stdin.close()
        process.wait()


def play(servers: dict[str, subprocess.Popen], number: int) -> dict[str, dict]:
    """Let every server play a round, in turns."""
    found: dict[str, dict] = {}
    while len(found) < len(servers):
        for name in [name for name in servers if name not in found]:
            if result := ask(servers[name], number):
                found[name] = result
    return {name: found[name] for name in servers}


def requests(number: int) -> list[tuple[float, int]]:
    """When each request of a round arrives, and its prompt's length."""
    rng = np.random.default_rng(number + 1)
    arrivals = np.cumsum(rng.exponential(1 / RATE, REQUESTS))
    lengths = rng.integers(*CHAT, REQUESTS)
    long = rng.choice(REQUESTS, REQUESTS // LONG_EVERY, replace=False)
    lengths[long] = rng.integers(*LONG, len(long))
    return list(zip(arrivals.tolist(), lengths.tolist(), strict=True))


# --- one engine, in a process of its own ----------------------------------------


def start(name: str) -> subprocess.Popen:
    log = (Path(tempfile.gettempdir()) / f"compare-record-{name}.log").open("w")
    return subprocess.Popen(
        [sys.executable, __file__, "--inside"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        text=True, env={**os.environ, **QUIET},
    )  # fmt: skip


def ask(process: subprocess.Popen, number: int) -> dict | None:
    """Give a server one turn in a round; return its run when that is over."""
    process.stdin.write(f"{number}\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    raise SystemExit("an engine ended early: see compare-record-*.log in the temporary directory")


def inside() -> None:
    from chunkwise.engine import compat
    from chunkwise.engine.stepper import Stepper
    from chunkwise.lab import models
    from chunkwise.lab.engines import without_weights
    from chunkwise.settings import Settings

    model = str(models.timing_model("30m"))
    settings = Settings(max_model_len=2 * LONG[1], enforce_eager=True, kv_cache_memory_bytes=2**28)
    more = {"load_format": "dummy"} if without_weights(model) else {}
    engine = Stepper(model, settings, "server", **more)
    tokenizer = compat.tokenizer(model)
    run = None
    for line in sys.stdin:
        run = run or one_run(engine, tokenizer, int(line))
        result = next(run)
        print("RESULT " + json.dumps(result), flush=True)
        if result is not None:
            run = None


def one_run(engine, tokenizer, number: int) -> Iterator[dict | None]:
    """Play a round, turn by turn; the last one brings the result."""
    from chunkwise.lab.prompts import prompt_ids

    plan = requests(number)
    # Every run has prompts of its own, so that no prefix is found in a cache.
    first = time.monotonic_ns() % 10**9 * 1000
    ids = [prompt_ids(tokenizer, first + n, length) for n, (_, length) in enumerate(plan)]
    tokens: list[list[float]] = [[] for _ in plan]
    sent, now, over = 0, 0.0, TURN
    last = time.process_time()
    while sent < len(plan) or engine.busy:
        if not engine.busy and plan[sent][0] > now:
            now, last = plan[sent][0], time.process_time()
        while sent < len(plan) and plan[sent][0] <= now:
            engine.add(f"{first}.{sent}", ids[sent], OUTPUT)
            sent += 1
        came = engine.step()
        tick = time.process_time()
        now, last = now + tick - last, tick
        for token in came:
            tokens[int(token.request_id.rpartition(".")[2])].append(round(now, 4))
        if now > over:
            yield None
            over, last = now + TURN, time.process_time()
    yield {
        "arrival": [round(arrival, 4) for arrival, _ in plan],
        "tokens": tokens,
        "prompts": [length for _, length in plan],
    }


if __name__ == "__main__":
    (inside if "--inside" in sys.argv else main)()
