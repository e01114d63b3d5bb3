"""How much traffic keeps its promise: vLLM's default, the best static settings, paced.

vLLM's real scheduler on a virtual clock, steps priced by silicon costs with 10%
noise; the pacer knows nothing of them and learns as it goes. A request is good
if its first token came within max(1 s, 3 x its unloaded prefill) and its P99 gap
is within the target. Capacity is the highest Poisson rate at which 90% are good,
the P99 of TTFT ÷ target is at most 5, and no prompt-length quartile is more than
ten points below. Results are kept run by run, so that it can be stopped and
taken up again. Usage: python benchmarks/pacing_capacity.py TRACES [--quick] [--processes 2]
"""

import argparse
import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import geometric_mean

import numpy as np

RESULTS = Path(__file__).parent / "results"
KEPT = RESULTS / "pacing-capacity.jsonl"
TABLE = RESULTS / "pacing-capacity.md"
PACED = "chunkwise.engine.scheduler.SimulatedScheduler"
SHARE, WARM_UP, NOISE = 0.9, 30.0, 0.1
BUDGETS = (256, 512, 768, 1024, 1280, 1536, 2048, 3072, 4096, 8192)
THRESHOLDS = (0, 256, 1024)
QUICK_STATICS = ((512, 0), (1280, 0), (1536, 0), (2048, 0), (2048, 256), (8192, 0))


@dataclass(frozen=True)
class Engine:
    name: str
    model: str
    system: str
    tp: int
    itl: float


ENGINES = (
    Engine("Qwen3-8B on H100", "Qwen/Qwen3-8B", "h100_sxm", 1, 0.050),
    Engine("Qwen3-8B on A100", "Qwen/Qwen3-8B", "a100_sxm", 1, 0.100),
    Engine("Llama-3.1-70B on 4xH100", "meta-llama/Meta-Llama-3.1-70B", "h100_sxm", 4, 0.075),
)
WORKLOADS = ("code", "conversation", "mooncake", "mix")
FILES = {
    "code": "azure_code_2023.csv",
    "conversation": "azure_conv_2023.csv",
    "mooncake": "mooncake_conversation.jsonl",
    "mix": "azure_conv_2023.csv",
}
LONGEST = 32_768
BATCH_SHARE = 0.2


class Noisy:
    """A cost whose steps take a tenth more or less, at random."""

    def __init__(self, cost, seed: int):
        self._cost = cost
        self._rng = np.random.default_rng(seed)
        self._left: list[float] = []
        self.provenance, self.error = cost.provenance, cost.error
        self.covers, self.largest_chunk = cost.covers, cost.largest_chunk

    def seconds(self, shape) -> float:
        if not self._left:
            self._left = np.exp(self._rng.normal(0, NOISE, 4096)).tolist()
        return self._cost.seconds(shape) * self._left.pop()


@cache
def machine_of(engine: Engine):
    from chunkwise.settings import Settings
    from chunkwise.sim.machine import on_gpu

    machine, settings = on_gpu(
        engine.model, engine.system, Settings(tensor_parallel_size=engine.tp)
    )
    return machine, settings


@cache
def traffic_of(traces: str, workload: str):
    from chunkwise.sim.traffic import Traffic
    from chunkwise.workload.readers import open_file
    from chunkwise.workload.text_workload import Reading

    path = Path(traces) / FILES[workload]
    found = Traffic.of(open_file(path, path.name, Reading()))
    found = found.only(np.flatnonzero(found.prompt + found.output < LONGEST))
    if workload == "mix":
        rng = np.random.default_rng(5)
        batch = rng.random(len(found)) < BATCH_SHARE
        prompts = np.where(batch, np.minimum(found.prompt * 4, 16_000), found.prompt)
        names = tuple("batch" if one else "chat" for one in batch.tolist())
        found = replace(found, prompt=prompts, classes=names)
    return found


def run(traces: str, engine: Engine, workload: str, arm: dict, when: dict, seed: int) -> dict:
    """One simulation of one arm; `when` says rate and seconds, or the trace's own scale."""
    from chunkwise.cost.step import StepShape
    from chunkwise.sim.run import simulate

    machine, settings = machine_of(engine)
    traffic = traffic_of(traces, workload)
    rng = np.random.default_rng(seed)
    if "rate" in when:
        count = max(50, int(when["rate"] * when["seconds"]))
        start = int(rng.integers(0, len(traffic)))
        chosen = (start + np.arange(count)) % len(traffic)
        gaps = rng.exponential(1 / when["rate"], count)
        traffic = replace(traffic.only(chosen), arrival=np.cumsum(gaps) - gaps[0])
    elif "scale" in when:
        scaled = traffic.scaled(when["scale"])
        traffic = scaled.only(np.flatnonzero(scaled.arrival < when["seconds"]))
    else:
        count = min(len(traffic), when["requests"])
        traffic = replace(traffic.only(np.arange(count)), arrival=np.zeros(count))
    given = settings.to_llm()
    if "budget" in arm:
        given["max_num_batched_tokens"] = arm["budget"]
        given["max_num_seqs"] = min(given["max_num_seqs"], arm["budget"])
        given["long_prefill_token_threshold"] = arm["threshold"]
    settings = type(settings)(**given)
    os.environ["CHUNKWISE"] = "on"
    os.environ["CHUNKWISE_ITL"] = f"{engine.itl * 1000:.0f}ms"
    os.environ["CHUNKWISE_TTFT"] = "1s"
    os.environ["CHUNKWISE_CLASSES"] = "chat,batch:ttft=none:itl=none"
    noisy = replace(machine, cost=Noisy(machine.cost, seed + 1000))
    found = simulate(
        traffic, settings, noisy, scheduler_cls=PACED if arm.get("paced") else None, seed=seed
    )
    measured = found.measured
    alone = np.array(
        [machine.cost.seconds(StepShape.of([(int(p), 0)])) for p in measured.prompt_tokens]
    )
    due = np.maximum(1.0, 3 * alone)
    late = np.where(measured.token_counts > 0, measured.ttft / due, np.inf)
    good = (late <= 1) & (measured.gap_quantile(0.99) <= engine.itl)
    judged = measured.arrival >= WARM_UP if "requests" not in when else measured.arrival >= 0
    batch = np.zeros(len(good), dtype=bool)
    if traffic.classes is not None:
        batch = np.array([name == "batch" for name in traffic.classes])
    judged &= ~batch
    quarters = measured.prompt_quarter
    seconds = float(measured.token_times.max() - measured.arrival.min())
    rate = len(measured) / seconds
    if "requests" in when:  # steady state: between the first and the last fifth to end
        early, late_end = np.quantile(measured.end_to_end, (0.2, 0.8))
        rate = 0.6 * len(measured) / float(late_end - early)
    return {
        "share": float(good[judged].mean()) if judged.any() else 0.0,
        "quartiles": [
            float(good[judged & (quarters == q)].mean()) if (judged & (quarters == q)).any() else 1
            for q in range(4)
        ],
        "late_p99": float(np.quantile(late[judged], 0.99)) if judged.any() else 0.0,
        "worst_wait": float(measured.ttft[measured.token_counts > 0].max()),
        "ttft_share": float((late[judged] <= 1).mean()) if judged.any() else 0.0,
        "rate": rate,
        "batch_tokens": float(measured.token_counts[batch].sum() / seconds),
        "preemptions": found.preemptions,
        "steps": len(found.steps),
    }


def keeps(result: dict) -> bool:
    return (
        result["share"] >= SHARE
        and result["late_p99"] <= 5
        and min(result["quartiles"]) >= SHARE - 0.1
    )


class Kept:
    """Results by key, on disk after each run."""

    def __init__(self, path: Path):
        self._path = path
        self._found = {}
        if path.is_file():
            for line in path.read_text().splitlines():
                row = json.loads(line)
                self._found[row["key"]] = row["result"]

    def get(self, traces, engine, workload, arm, when, seed) -> dict:
        key = json.dumps([engine.name, workload, arm, when, seed], sort_keys=True)
        if key not in self._found:
            self._found[key] = run(traces, engine, workload, arm, when, seed)
            with self._path.open("a") as file:
                file.write(json.dumps({"key": key, "result": self._found[key]}) + "\n")
        return self._found[key]


def capacity(ask, limit: float, looks: int, seeds: int) -> float:
    """Bisect the rate below the limit at the first seed; the others may only lower it."""
    low, high = 0.0, limit
    for _ in range(looks):
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(ask(middle, 0)) else (low, middle)
    for seed in range(1, seeds):
        while low > 0 and not keeps(ask(low, seed)):
            low *= 0.95
            if low < limit / 50:
                return 0.0
    return low


def cell(task) -> dict:
    """Everything about one engine and one workload."""
    traces, engine, workload, quick, place = task
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    kept = Kept(Path(place))
    short, whole = (90, 150) if quick else (120, 600)
    seeds, looks = (1, 4) if quick else (3, 6)
    default, paced = {}, {"paced": True}
    requests = 300 if quick else 1500

    def ask(arm, when, seed=0):
        return kept.get(traces, engine, workload, arm, when, seed)

    saturation = max(
        ask(arm, {"requests": requests})["rate"]
        for arm in (default, {"budget": 2048, "threshold": 0})
    )
    statics = [{"budget": b, "threshold": t} for b, t in QUICK_STATICS]
    if not quick:
        statics = [{"budget": b, "threshold": t} for b in BUDGETS for t in THRESHOLDS if t < b]
    at = {"rate": round(0.75 * saturation, 4), "seconds": short}
    screened = sorted(statics, key=lambda arm: -ask(arm, at)["share"])
    best_arms = screened[: 1 if quick else 3]

    def capacity_of(arm):
        return capacity(
            lambda rate, seed: ask(arm, {"rate": round(rate, 4), "seconds": whole}, seed),
            1.1 * saturation,
            looks,
            seeds,
        )

    found = {
        "engine": engine.name,
        "workload": workload,
        "saturation": saturation,
        "screen": {json.dumps(arm): ask(arm, at)["share"] for arm in statics},
        "default": capacity_of(default),
        "static": {json.dumps(arm): capacity_of(arm) for arm in best_arms},
        "paced": capacity_of(paced),
        "bursty": [],
    }
    own = len(traffic_of(traces, workload)) / float(traffic_of(traces, workload).arrival[-1])
    for share in (0.7,) if quick else (0.5, 0.7, 0.9):
        when = {"scale": round(share * saturation / own, 4), "seconds": whole}
        arms = {"default": default, "paced": paced}
        arms |= {json.dumps(arm): arm for arm in best_arms}
        found["bursty"].append(
            {"load": share, **{name: ask(arm, when) for name, arm in arms.items()}}
        )
    return found


def table(cells: list[dict]) -> str:
    lines = [
        "| engine | workload | saturation | default | best static | paced | ÷ default | ÷ static "
        "| ÷ saturation |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    gains, own = [], []
    for one in cells:
        arm, static = max(one["static"].items(), key=lambda item: item[1])
        setting = json.loads(arm)
        to_default = one["paced"] / one["default"] if one["default"] else float("nan")
        to_static = one["paced"] / static if static else float("nan")
        gains += [to_default] if one["default"] and one["paced"] else []
        own += [to_static] if static and one["paced"] else []
        lines.append(
            f"| {one['engine']} | {one['workload']} | {one['saturation']:.2f}/s | "
            f"{one['default']:.2f} | {static:.2f} ({setting['budget']}/{setting['threshold']}) | "
            f"{one['paced']:.2f} | {to_default:.2f} | {to_static:.2f} | "
            f"{one['paced'] / one['saturation']:.2f} |"
        )
    if gains and own:
        lines.append("")
        lines.append(
            f"Geometric means over cells where neither is zero: paced ÷ default "
            f"{geometric_mean(gains):.2f}, paced ÷ each cell's best static "
            f"{geometric_mean(own):.2f}."
        )
    lines += ["", "| engine | workload | load | default | best static | paced | worst wait paced |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    for one in cells:
        for row in one["bursty"]:
            static = max(
                value["share"]
                for name, value in row.items()
                if name not in ("load", "default", "paced")
            )
            lines.append(
                f"| {one['engine']} | {one['workload']} | {row['load']:.0%} | "
                f"{row['default']['share']:.1%} | {static:.1%} | {row['paced']['share']:.1%} | "
                f"{row['paced']['worst_wait']:.1f} s |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", help="folder with the public traces")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    engines = ENGINES[:1] if given.quick else ENGINES
    workloads = WORKLOADS[:2] if given.quick else WORKLOADS
    name = "-quick" if given.quick else ""
    tasks = [
        (
            given.traces,
            engine,
            workload,
            given.quick,
            str(
                KEPT.with_name(f"pacing-capacity{name}-{engine.system}{engine.tp}-{workload}.jsonl")
            ),
        )
        for engine in engines
        for workload in workloads
    ]
    context = multiprocessing.get_context("spawn")
    cells = []
    with ProcessPoolExecutor(min(given.processes, len(tasks)), context) as pool:
        for number, found in enumerate(pool.map(cell, tasks), 1):
            cells.append(found)
            print(f"{number} of {len(tasks)} cells", file=sys.stderr)
    shown = table(cells)
    print(shown)
    TABLE.with_name(f"pacing-capacity{name}.md").write_text(shown)
    TABLE.with_name(f"pacing-capacity{name}.json").write_text(json.dumps(cells, indent=1) + "\n")


if __name__ == "__main__":
    main()
