"""Compare simulated serving with the real engine here: vLLM's CPU build, two timing models.

Each engine is a process of its own, stepped in process (no HTTP). One run per
model and workload, with another seed, gives the timed steps that the cost is
fitted to; then the workload itself is served three times and simulated once with
that cost. Usage: .venv/bin/python benchmarks/fidelity_cpu.py [--models 30m]
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from chunkwise.cost.fitted import FittedCost, TimedStep, fit
from chunkwise.cost.memory import pool_from_bytes
from chunkwise.cost.shape import in_dtype, read_shape
from chunkwise.cost.step import Provenance, StepShape
from chunkwise.lab import models
from chunkwise.measured import Measured
from chunkwise.settings import Settings
from chunkwise.sim.run import Machine, simulate
from chunkwise.sim.traffic import Shared, Traffic

RESULT = Path(__file__).parent / "results" / "fidelity_cpu.txt"
REPETITIONS = 3
REQUESTS = 80
BLOCK = 128
SETTINGS = Settings(
    max_num_batched_tokens=512,
    max_num_seqs=32,
    max_model_len=8192,
    kv_cache_memory_bytes=2**30,
    block_size=BLOCK,
    dtype="float32",
    enforce_eager=True,
    enable_prefix_caching=True,
    async_scheduling=False,
)
RATES = {"30m": {"chat": 8.0, "documents": 3.0, "prefixes": 4.0}}
RATES["130m"] = {name: rate / 6 for name, rate in RATES["30m"].items()}
QUIET = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}


def workload(name: str, rate: float, seed: int) -> Traffic:
    """Return short chat; the same with one long document in ten; or long shared prefixes."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(40, 300, REQUESTS)
    output = rng.integers(20, 60, REQUESTS)
    shared = None
    if name == "documents":
        prompt = np.where(rng.random(REQUESTS) < 0.1, rng.integers(2000, 4000, REQUESTS), prompt)
    if name == "prefixes":
        prompt = prompt + 8 * BLOCK
        ids = np.arange(8) + 100 * rng.integers(0, 6, REQUESTS)[:, None]
        shared = Shared(ids.ravel().astype(np.uint64), np.arange(1, REQUESTS + 1) * 8, BLOCK)
    return replace(Traffic(prompt, output, shared=shared), arrival=None).at_rate(rate, seed)


def serve(model: str, traffic: Traffic) -> dict[str, Any]:
    """Serve the traffic in real time on an engine in this process."""
    from chunkwise.engine.stepper import Stepper

    engine = Stepper(model, SETTINGS, load_format="dummy")
    engine.add("warm", list(range(600)), 4)
    while engine.busy:
        engine.step()
    before = len(engine.steps)
    arrival = traffic.arrival
    assert arrival is not None
    tokens: list[list[float]] = [[] for _ in range(len(traffic))]
    timed, sent, start = [], 0, time.monotonic()
    while sent < len(traffic) or engine.busy:
        now = time.monotonic() - start
        while sent < len(traffic) and arrival[sent] <= now:
            engine.add(str(sent), token_ids(traffic, sent), int(traffic.output[sent]))
            sent += 1
        if not engine.busy:
            time.sleep(max(0.0, float(arrival[sent]) - (time.monotonic() - start)))
            continue
        begun = time.monotonic()
        came = engine.step()
        seconds = time.monotonic() - begun
        numbers = [int(token.request_id) for token in came]
        decodes = [
            int(traffic.prompt[number]) + len(tokens[number]) - 1
            for number in numbers
            if tokens[number]
        ]
        chunks = [(chunk.tokens, chunk.context) for chunk in engine.steps[-1].chunks]
        timed.append((chunks, decodes, seconds))
        for number, token in zip(numbers, came, strict=True):
            tokens[number].append(token.seconds - start)
    cached: dict[str, int] = {}
    for step in engine.steps[before:]:
        for chunk in step.chunks:
            cached.setdefault(chunk.request_id.rsplit("-", 1)[0], chunk.context)
    return {"tokens": tokens, "steps": timed, "cached": sum(cached.values())}


def token_ids(traffic: Traffic, number: int) -> list[int]:
    """Make a prompt whose blocks are equal where their ids are."""
    prefix = None if traffic.shared is None else traffic.shared.of(number)
    ids: list[int] = []
    for block in () if prefix is None else prefix.ids.tolist():
        ids += np.random.default_rng(block).integers(10, 40_000, BLOCK).tolist()
    rest = int(traffic.prompt[number]) - len(ids)
    return ids + np.random.default_rng(10**6 + number).integers(10, 40_000, rest).tolist()


def child(model: str, name: str, rate: float, seed: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--inside", model, name, str(rate), str(seed)],
        capture_output=True,
        text=True,
        env={**os.environ, **QUIET},
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.rpartition("@@")[2])
    return found


def calibrated(model: str, runs: list[dict[str, Any]]) -> FittedCost:
    steps = [
        TimedStep(StepShape.of(map(tuple, chunks), decodes), seconds)
        for found in runs
        for chunks, decodes, seconds in found["steps"]
    ]
    return fit(steps, Provenance("calibration", model, "cpu"))


FIGURES: dict[str, Callable[[Measured], float]] = {
    "tokens/s": lambda run: run.output_tokens_per_second,
    "TTFT p50": lambda run: float(np.median(run.ttft)),
    "TTFT p99": lambda run: float(np.quantile(run.ttft, 0.99)),
    "gap p50": lambda run: float(np.median(run.gaps)),
    "gap p99": lambda run: float(np.quantile(run.gaps, 0.99)),
}


def compare(size: str, name: str) -> list[str]:
    path, rate = str(models.timing_model(size)), RATES[size][name]
    cost = calibrated(path, [child(path, name, rate, seed=100)])
    traffic = workload(name, rate, seed=1)
    runs = [child(path, name, rate, seed=1) for _ in range(REPETITIONS)]
    assert traffic.arrival is not None
    measured = [
        Measured.of(traffic.arrival.tolist(), run["tokens"], traffic.prompt.tolist())
        for run in runs
    ]
    tokens = pool_from_bytes(in_dtype(read_shape(path), "float32"), 2**30, BLOCK).tokens
    found = simulate(traffic, SETTINGS, Machine(cost, tokens, 8192))
    lines = [f"{size} {name}: {rate:.2f} requests/s, fit within {cost.error.p50:.1%} (median)"]
    for title, figure in FIGURES.items():
        truth = [figure(run) for run in measured]
        middle = float(np.median(truth))
        simulated = figure(found.measured)
        inside = min(truth) <= simulated <= max(truth)
        lines.append(
            f"  {title:<9} simulated {simulated:9.4f}  measured {middle:9.4f} "
            f"({min(truth):.4f} to {max(truth):.4f})  {simulated / middle - 1:+6.1%}"
            f"{'  within the runs' if inside else ''}"
        )
    hits = [run["cached"] for run in runs]
    lines.append(f"  cached tokens: simulated {int(found.cached_tokens.sum()):,}, measured {hits}")
    return lines


def main() -> None:
    if sys.argv[1:2] == ["--inside"]:
        model, name, rate, seed = sys.argv[2:]
        found = serve(model, workload(name, float(rate), int(seed)))
        print("@@" + json.dumps(found))
        return
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--models", default="30m,130m")
    ask.add_argument("--workloads", default="chat,documents,prefixes")
    chosen = ask.parse_args()
    lines = ["$ python benchmarks/fidelity_cpu.py"]
    for size in chosen.models.split(","):
        for name in chosen.workloads.split(","):
            lines += compare(size, name)
            print("\n".join(lines[-7:]), flush=True)
    RESULT.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
