"""Compare simulated serving with a real server here: vLLM's CPU build, two timing models.

For each model one server, observed, and the lab's client. Runs of each workload
take turns: one with another seed, whose captured steps the cost is fitted to and
whose requests say how long HTTP takes; then the workload itself, whose figures
as the client saw them stand beside those of a simulation with that cost.
Usage: OMP_NUM_THREADS=1 python benchmarks/fidelity_cpu.py [--models 30m]
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from chunkwise.cost.fitted import FittedCost, TimedStep, fit
from chunkwise.cost.memory import pool_from_bytes
from chunkwise.cost.shape import in_dtype, read_shape
from chunkwise.cost.step import Provenance, StepShape
from chunkwise.lab import models
from chunkwise.lab.load import Client, Request
from chunkwise.lab.server import Server
from chunkwise.measured import Measured
from chunkwise.observed import Step
from chunkwise.readers.capture import Capture, calibration, captures
from chunkwise.settings import Settings
from chunkwise.sim.run import Machine, simulate
from chunkwise.sim.traffic import Shared, Traffic

RESULTS = Path(__file__).parent / "results"
REPETITIONS = 3
REQUESTS = {"30m": 80, "130m": 40}
BLOCK = 128
KV_BYTES = 2**30
CONTEXT = 8192
SETTINGS = Settings(
    max_num_batched_tokens=512,
    max_num_seqs=32,
    max_model_len=CONTEXT,
    kv_cache_memory_bytes=KV_BYTES,
    block_size=BLOCK,
    dtype="float32",
    enforce_eager=True,
    enable_prefix_caching=True,
    async_scheduling=False,
)
ARGS = [
    *("--load-format", "dummy", "--enforce-eager", "--dtype", "float32"),
    *("--max-num-batched-tokens", "512", "--max-num-seqs", "32", "--block-size", str(BLOCK)),
    *("--max-model-len", str(CONTEXT), "--kv-cache-memory-bytes", str(KV_BYTES)),
    *("--scheduler-cls", "chunkwise.PacedScheduler"),
]
RATES = {"30m": {"chat": 6.0, "documents": 2.5, "prefixes": 3.0}}
# About six times slower; near saturation a queue makes much of every small error.
RATES["130m"] = {name: rate / 6 for name, rate in RATES["30m"].items()}
BETWEEN = 0.01  # seconds: a longer pause is a wait for requests
FLUSHED = 3.0  # seconds until the capture has all of a run


@dataclass(frozen=True)
class Run:
    """What the client and the plug-in saw of one run."""

    seen: Measured
    steps: list[Step]
    cached: int
    preemptions: int
    http: float  # seconds that a first token takes longer for the client than for the engine


def workload(name: str, size: str, seed: int) -> Traffic:
    """Return short chat; the same with one long document in ten; or long shared prefixes."""
    count = REQUESTS[size]
    rng = np.random.default_rng(seed)
    prompt = rng.integers(40, 300, count)
    output = rng.integers(20, 60, count)
    shared = None
    if name == "documents":
        prompt = np.where(rng.random(count) < 0.1, rng.integers(2000, 4000, count), prompt)
    if name == "prefixes":
        prompt = prompt + 8 * BLOCK
        ids = np.arange(8) + 100 * rng.integers(0, 6, count)[:, None]
        shared = Shared(ids.ravel().astype(np.uint64), np.arange(1, count + 1) * 8, BLOCK)
    return Traffic(prompt, output, shared=shared).at_rate(RATES[size][name], seed)


class Bench:
    """One server, its client and its capture."""

    def __init__(self, server: Server, client: Client, folder: Path):
        self._server, self._client, self._folder = server, client, folder
        (capture,) = captures(folder)
        self._taken = len(parts(capture, 0)[0])  # what came before is not ours to read

    def run(self, traffic: Traffic, salt: str) -> Run:
        found = self._client.play(
            self._server.url,
            self._server.model,
            requests(traffic),
            salt=salt,
            block_size=BLOCK,
        )
        assert found is not None
        assert not found.failed, found.failed
        time.sleep(FLUSHED)
        (capture,) = captures(self._folder)
        steps, ended = parts(capture, self._taken)
        self._taken += len(steps)
        first = [one for one in ended if one.first_step is not None]
        first = [one for one in first if one.first_step >= steps[0].number]
        assert len(first) == len(traffic)
        inside = [one.first_token - one.arrival for one in first]
        return Run(
            found.measured,
            steps,
            sum(one.cached for one in first),
            sum(one.preemptions for one in first),
            float(np.median(found.measured.ttft) - np.median(inside)),
        )


def parts(capture: Capture, taken: int) -> tuple[list[Step], list]:
    records = list(capture.records())
    steps = [one for one in records if isinstance(one, Step)]
    return steps[taken:], [one for one in records if not isinstance(one, Step)]


def requests(traffic: Traffic) -> list[Request]:
    assert traffic.arrival is not None
    shared = [traffic.shared.of(n) if traffic.shared else None for n in range(len(traffic))]
    return [
        Request(
            float(traffic.arrival[n] - traffic.arrival[0]),
            int(traffic.prompt[n]),
            int(traffic.output[n]),
            blocks=tuple(prefix.ids.tolist()) if prefix else (),
        )
        for n, prefix in enumerate(shared)
    ]


def calibrated(model: str, runs: list[Run]) -> FittedCost:
    steps = []
    for run in runs:
        last = float("-inf")
        for step in run.steps:
            chunks, decodes, context, seconds = calibration(step)
            # A client waits for what the engine does between two steps, too.
            since, last = step.end - last, step.end
            seconds = since if seconds < since < seconds + BETWEEN else seconds
            steps.append(TimedStep(StepShape.of(chunks).with_decodes(decodes, context), seconds))
    return fit(steps, Provenance("calibration", model, "cpu"))


FIGURES: dict[str, Callable[[Measured], float]] = {
    "tokens/s": lambda run: run.output_tokens_per_second,
    "TTFT p50": lambda run: float(np.median(run.ttft)),
    "TTFT p99": lambda run: float(np.quantile(run.ttft, 0.99)),
    "gap p50": lambda run: float(np.median(run.gaps)),
    "gap p99": lambda run: float(np.quantile(run.gaps, 0.99)),
}
ASKED = {"tokens/s": 0.03}


def compare(bench: Bench, size: str, name: str) -> list[str]:
    path = str(models.timing_model(size))
    traffic = workload(name, size, seed=1)
    learnt, runs = [], []
    for turn in range(REPETITIONS):
        learnt.append(bench.run(workload(name, size, seed=100 + turn), f"learn-{name}-{turn}"))
        runs.append(bench.run(traffic, f"run-{name}-{turn}"))
    cost = calibrated(path, learnt)
    tokens = pool_from_bytes(in_dtype(read_shape(path), "float32"), KV_BYTES, BLOCK).tokens
    latency = max(0.0, float(np.median([run.http for run in learnt])))
    found = simulate(traffic, SETTINGS, Machine(cost, tokens, CONTEXT, latency, cost.scatter))
    lines = [
        f"{size} {name}: {RATES[size][name]:.2f} requests/s, HTTP {1e3 * latency:.1f} ms, "
        f"fit off by {cost.error.p50:.1%} (median)"
    ]
    for title, figure in FIGURES.items():
        truth = [figure(run.seen) for run in runs]
        middle = float(np.median(truth))
        simulated = figure(found.measured)
        off = simulated / middle - 1
        if abs(off) <= ASKED.get(title, 0.1):
            verdict = "as asked"
        else:
            inside = min(truth) <= simulated <= max(truth)
            verdict = "within the runs" if inside else "missed"
        lines.append(
            f"  {title:<9} simulated {simulated:9.4f}  measured {middle:9.4f} "
            f"({min(truth):.4f} to {max(truth):.4f})  {off:+6.1%}  {verdict}"
        )
    hits, lost = ([getattr(run, what) for run in runs] for what in ("cached", "preemptions"))
    lines.append(f"  cached tokens: simulated {int(found.cached_tokens.sum()):,}, measured {hits}")
    lines.append(f"  preemptions: simulated {found.preemptions}, measured {lost}")
    return lines


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--models", default="30m,130m")
    ask.add_argument("--workloads", default="chat,documents,prefixes")
    chosen = ask.parse_args()
    os.environ |= {"CHUNKWISE": "observe", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    for size in chosen.models.split(","):
        lines = [
            f"$ OMP_NUM_THREADS=1 python benchmarks/fidelity_cpu.py --models {size}",
            "",
            f"{REPETITIONS} runs of each; asked: throughput within 3%, the others within 10%",
        ]
        path = str(models.timing_model(size))
        with tempfile.TemporaryDirectory() as folder:
            os.environ["CHUNKWISE_DIR"] = folder
            server = Server("fidelity", path, ARGS)
            try:
                server.wait_healthy()
                with Client(path, CONTEXT) as client:
                    client.start(lambda text, done: None)
                    warm = [replace(one, at=0.0) for one in requests(workload("chat", size, 999))]
                    client.play(server.url, server.model, warm, salt="warm", users=16)
                    time.sleep(FLUSHED)
                    bench = Bench(server, client, Path(folder))
                    for name in chosen.workloads.split(","):
                        lines += ["", *compare(bench, size, name)]
                        print("\n".join(lines[-9:]), flush=True)
                        file = RESULTS / f"fidelity_cpu_{size}.txt"
                        file.write_text("\n".join([*lines, ""]))
            finally:
                server.stop()


if __name__ == "__main__":
    main()
