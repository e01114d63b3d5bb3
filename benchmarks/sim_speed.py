"""How fast the simulator is, beside the time that vLLM's own two calls take.

Each repetition runs the same load three times, one after another: vLLM's
`schedule` and `update_from_output` alone (the bare loop), the simulator taking
every single step, and the simulator as it is (runs of pure decoding at once).
Then an hour of real conversation on one core and, with `--fleet`, a thousand
replicas. Usage: .venv/bin/python benchmarks/sim_speed.py TRACE.csv [--fleet]
"""

import argparse
import os
import resource
import sys
import time
from collections import deque
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from chunkwise.engine import compat
from chunkwise.engine.bare_scheduler import BareScheduler
from chunkwise.settings import Settings
from chunkwise.sim.fleet import run_fleet
from chunkwise.sim.machine import on_gpu
from chunkwise.sim.run import Machine, simulate
from chunkwise.sim.sources import Users
from chunkwise.sim.traffic import Traffic
from chunkwise.workload.readers import open_file
from chunkwise.workload.text_workload import Reading

RESULTS = Path(__file__).parent / "results"
REPETITIONS = 5
TIMED = "sim_speed.timed_scheduler"
INSIDE = [0.0]


def real_time() -> float:
    """Return seconds, also where the simulator has put its own clock in place of the usual ones."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def timed_scheduler(*args: Any, vllm_config: Any, **kwargs: Any) -> Any:
    """vLLM's own class, with a clock around the two calls; being another class, it is stepped."""
    base: Any = compat.stock_scheduler(vllm_config)

    class Timed(base):  # type: ignore[misc]
        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            start = real_time()
            found = super().schedule(*args, **kwargs)
            INSIDE[0] += real_time() - start
            return found

        def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
            start = real_time()
            found = super().update_from_output(*args, **kwargs)
            INSIDE[0] += real_time() - start
            return found

    return Timed(*args, vllm_config=vllm_config, **kwargs)


def bare_loop(running: int, traffic: Traffic, settings: Settings, machine: Machine) -> float:
    """Return the seconds in vLLM's two calls with `running` requests at a time, nothing else."""
    blocks = machine.kv_tokens // 16
    scheduler = BareScheduler(settings, machine.max_model_len, blocks, TIMED)
    prompts, outputs = traffic.prompt.tolist(), traffic.output.tolist()
    sent, flight = 0, deque[Any]()
    while sent < len(traffic) or scheduler.unfinished:
        while sent < len(traffic) and scheduler.unfinished < running:
            scheduler.add(sent, prompts[sent], outputs[sent])
            sent += 1
        flight.append(scheduler.schedule())
        if len(flight) == scheduler.depth:
            scheduler.update(flight.popleft())
    return inside()


def inside() -> float:
    """Return the seconds inside vLLM's two calls since this was last asked."""
    # The scheduler is found by this file's name, hence in a module of its own.
    clock: list[float] = sys.modules["sim_speed"].INSIDE
    found, clock[0] = clock[0], 0.0
    return found


def compare(running: int, machine: Machine) -> str:
    traffic = Traffic.made(1024, 256, 3 * running, 0.2)
    settings = Settings(max_num_batched_tokens=8192, max_num_seqs=running)
    users = Users(running)
    bare, whole, ratios = [], [], []
    for _ in range(REPETITIONS):
        bare.append(bare_loop(running, traffic, settings, machine))
        start = time.perf_counter()
        simulate(traffic, settings, machine, users, TIMED)
        ratios.append((time.perf_counter() - start) / inside())
        start = time.perf_counter()
        simulate(traffic, settings, machine, users)
        whole.append(time.perf_counter() - start)
    gain = [a / b for a, b in zip(bare, whole, strict=True)]
    return (
        f"{running:>4} running: every step taken: {median(ratios):.2f} x the time inside vLLM's "
        f"two calls ({min(ratios):.2f} to {max(ratios):.2f}); as it is: {1 / median(gain):.2f} x "
        f"a bare loop's ({1 / max(gain):.2f} to {1 / min(gain):.2f})"
    )


def hour(trace: Path) -> str:
    machine, settings = on_gpu("Qwen/Qwen3-8B", "h100_sxm", Settings())
    traffic = Traffic.of(open_file(trace, trace.name, Reading()))
    start, used = time.perf_counter(), time.process_time()
    found = simulate(traffic, settings, machine).measured
    wall, used = time.perf_counter() - start, time.process_time() - used
    return (
        f"{trace.name}: {len(traffic):,} requests, {len(found.token_times):,} tokens, "
        f"{found.seconds:,.0f} virtual seconds in {wall:,.0f} s of wall time "
        f"({used:,.0f} s of one core): {found.seconds / used:,.1f} virtual seconds a core second"
    )


def fleet(trace: Path, replicas: int = 1000, requests: int = 1000) -> str:
    machine, settings = on_gpu("Qwen/Qwen3-8B", "h100_sxm", Settings())
    known = Traffic.of(open_file(trace, trace.name, Reading()))
    drawn = np.random.default_rng(0).integers(0, len(known), replicas * requests)
    traffic = Traffic(known.prompt[drawn], known.output[drawn]).at_rate(2.0 * replicas)
    start = time.perf_counter()
    tokens, worst = 0, 0.0
    for replica in run_fleet(traffic, settings, machine, replicas, "least-tokens"):
        tokens += len(replica.simulation.measured.token_times)
        worst = max(worst, float(np.nanquantile(replica.simulation.measured.ttft, 0.99)))
    wall = time.perf_counter() - start
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (
        f"{replicas:,} replicas x {requests:,} requests: {tokens:,} tokens in {wall:,.0f} s on "
        f"{os.cpu_count()} cores; largest process {max(own, children) / 2**20:.2f} GiB, all at "
        f"most {(own + (os.cpu_count() or 1) * children) / 2**20:.2f} GiB; worst replica's P99 "
        f"TTFT {worst:.2f} s"
    )


def main() -> None:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("trace", type=Path)
    ask.add_argument("--fleet", action="store_true")
    chosen = ask.parse_args()
    if chosen.fleet:
        lines, name = [fleet(chosen.trace)], "sim_fleet.txt"
    else:
        machine, _ = on_gpu("Qwen/Qwen3-8B", "h100_sxm", Settings())
        compat.load_vllm()
        import sim_speed  # noqa: F401  (the same file, by the name that TIMED says)

        simulate(Traffic.made(10, 5, 5), Settings(max_num_seqs=8), machine)  # what loads once
        lines, name = (
            [compare(64, machine), compare(256, machine), hour(chosen.trace)],
            "sim_speed.txt",
        )
    told = f"$ python benchmarks/sim_speed.py {chosen.trace.name}{' --fleet' * chosen.fleet}"
    (RESULTS / name).write_text("\n".join([told, *lines, ""]))
    print((RESULTS / name).read_text())


if __name__ == "__main__":
    main()
