"""Compare simulated GPU serving with measured runs, and keep the table.

The measurements are those that `aiconfigurator-core` ships (`silicon_sample.csv`):
a model, a GPU, lengths, a closed-loop concurrency, and the TTFT and time per
output token (TPOT) that a client saw. What the client did is not in the file; it
is set here, per source, in `CLIENTS`, before anything is compared. Each row's
result is kept, so that the run can be stopped and taken up again.

Usage: .venv/bin/python benchmarks/fidelity_gpu.py [--minutes 5] [--moe]
       … --estimates OTHER_PYTHON   (one with the package `aiconfigurator`)
       … --table                    (only write the tables)
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
RUNS = RESULTS / "fidelity_gpu.csv"
ESTIMATES = RESULTS / "fidelity_gpu_aiconfigurator.csv"
TABLE = RESULTS / "fidelity_gpu.txt"
NAMES = {"meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B"}
DENSE = {"Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B"}
BYTES = {"": 2.0, "fp8": 1.0, "nvfp4": 0.5625, "int4_wo": 0.53}
# The factors that are tried for "one factor per GPU", on rows that are then not reported.
FACTORS = (0.9, 1.0, 1.1, 1.2, 1.3)
REQUEST_LATENCY = 0.005
OTHER_BYTES = 5e9


@dataclass(frozen=True)
class Client:
    """How the load was made and the server set, where the source does not say."""

    jitter: float  # lengths uniform in (1 - jitter, 1] of nominal
    asynchronous: bool
    host: float
    host_per_request: float

    def budget(self, isl: int, concurrency: int) -> int:
        return 8192 if self.asynchronous else concurrency + isl + 1500


INFERENCE_MAX = Client(0.2, True, 0.0005, 0.0)
VLLM_0_12 = Client(0.0, False, 0.0015, 0.00004)


@dataclass(frozen=True)
class Row:
    id: str
    model: str
    system: str
    quantization: str
    tp: int
    ep: int
    isl: int
    osl: int
    concurrency: int
    ttft: float
    tpot: float
    version: str

    @property
    def client(self) -> Client:
        return VLLM_0_12 if self.version == "0.12.0" else INFERENCE_MAX

    @property
    def group(self) -> str:
        name = self.model.split("/")[-1]
        return f"{name} {self.system.split('_')[0].upper()} {self.quantization or 'bf16'}"


def rows(moe: bool = False) -> list[Row]:
    """Return the single-engine vLLM rows, dense or not, that say their concurrency."""
    spec = find_spec("aiconfigurator_core")
    assert spec is not None
    assert spec.submodule_search_locations
    file = Path(spec.submodule_search_locations[0]) / "systems" / "silicon_sample.csv"
    found = []
    with file.open() as lines:
        for item in csv.DictReader(lines):
            if item["backend"] != "vllm" or item["mode"] != "agg":
                continue
            if item["attention_dp_size"] not in ("", "1"):
                continue  # several engines
            said = re.search(r"silicon_concurrency=(\d+)", item["silicon_data_source"])
            if said is None or (item["model_path"] in DENSE) == moe:
                continue
            found.append(
                Row(
                    item["id"],
                    item["model_path"],
                    item["system"],
                    item["gemm_quant_mode"],
                    int(item["tp_size"]),
                    int(item["moe_ep_size"] or 1),
                    int(item["isl"]),
                    int(item["osl"]),
                    int(said[1]),
                    float(item["silicon_ttft_ms"]) / 1000,
                    float(item["silicon_tpot_ms"]) / 1000,
                    item["backend_version"],
                )
            )
    return found


@cache
def cost_of(model: str, system: str, quantization: str, tp: int) -> object:
    from chunkwise.cost import silicon

    return silicon.load(NAMES.get(model, model), system, tp, weights=quantization or None)


def run(row: Row, factor: float = 1.0) -> tuple[float, float]:
    """Simulate a row; return the mean TTFT and the mean time per output token."""
    from dataclasses import replace

    from chunkwise.cost.graphs import Graphs, StepTerms, default_capture_limit
    from chunkwise.settings import Settings
    from chunkwise.sim.run import Machine, simulate
    from chunkwise.sim.sources import Users
    from chunkwise.sim.traffic import Traffic

    client = row.client
    cost = cost_of(row.model, row.system, row.quantization, row.tp)
    terms = StepTerms(
        host=client.host,
        host_per_request=client.host_per_request,
        capture_limit=default_capture_limit(row.system),
        prefill_factor=factor,
    )
    cost = replace(cost, terms=terms, graphs=Graphs(terms, shape_of(row.model).layers))
    machine = Machine(cost, kv_tokens(row), 131_072, REQUEST_LATENCY)
    settings = Settings(
        max_num_batched_tokens=client.budget(row.isl, row.concurrency),
        max_num_seqs=row.concurrency,
        async_scheduling=client.asynchronous,
        enable_prefix_caching=False,
    )
    traffic = Traffic.made(row.isl, row.osl, 10 * row.concurrency, client.jitter, seed=0)
    found = simulate(traffic, settings, machine, Users(row.concurrency)).measured
    return float(found.ttft.mean()), float(np.nanmean(found.time_per_output_token))


@cache
def shape_of(model: str) -> object:
    from chunkwise.cost.shape import read_shape
    from chunkwise.cost.silicon import config_file

    return read_shape(str(config_file(NAMES.get(model, model))))


def kv_tokens(row: Row) -> int:
    from chunkwise.cost.memory import kv_bytes_per_token
    from chunkwise.cost.silicon import device_memory

    shape = shape_of(row.model)
    total, _ = device_memory(row.system, row.tp)
    weights = shape.weights * BYTES[row.quantization] / row.tp
    return int((0.9 * total - weights - OTHER_BYTES) / kv_bytes_per_token(shape, 2, row.tp))


# --- what is kept ---


def kept(file: Path) -> dict[tuple[str, float], tuple[float, float]]:
    if not file.exists():
        return {}
    with file.open() as lines:
        return {
            (item["id"], float(item["factor"])): (float(item["ttft"]), float(item["tpot"]))
            for item in csv.DictReader(lines)
        }


def keep(file: Path, key: tuple[str, float], value: tuple[float, float]) -> None:
    new = not file.exists()
    with file.open("a") as out:
        if new:
            out.write("id,factor,ttft,tpot\n")
        out.write(f"{key[0]},{key[1]},{value[0]:.6g},{value[1]:.6g}\n")


def simulate_all(todo: Iterable[tuple[Row, float]], seconds: float) -> None:
    end = time.monotonic() + seconds
    done = kept(RUNS)
    for row, factor in todo:
        if (row.id, factor) in done:
            continue
        if time.monotonic() > end:
            print("out of time; run again to go on", file=sys.stderr)
            return
        start = time.process_time()
        try:
            found = run(row, factor)
        except Exception as error:  # a row that the cost source does not support
            print(f"{row.id}: {error}", file=sys.stderr)
            found = (float("nan"), float("nan"))
        keep(RUNS, (row.id, factor), found)
        print(
            f"{row.id} x{factor}: TTFT {found[0] / row.ttft - 1:+.1%} "
            f"TPOT {found[1] / row.tpot - 1:+.1%} ({time.process_time() - start:.1f} s)",
            flush=True,
        )


# --- one factor per GPU, chosen on rows that are not reported ---


def half(row: Row) -> int:
    """Say which half of its GPU's rows a row is in: by model, else precision, else TP."""
    if row.system == "h100_sxm":
        return int(row.model.startswith("Qwen"))
    if row.system == "b200_sxm":
        return int(row.quantization == "nvfp4")
    return int(row.tp in (2, 8))


def tuning(chosen: list[Row]) -> list[Row]:
    """Return the few rows of each half on which a factor is chosen: long prompts, small loads."""
    found: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in sorted(chosen, key=lambda row: (-row.isl, row.concurrency, row.osl, row.tp)):
        of_half = found[row.system, half(row)]
        if len(of_half) < 6 and row.concurrency <= 16:
            of_half.append(row)
    return [row for some in found.values() for row in some]


def best_factors(
    chosen: list[Row], done: dict[tuple[str, float], tuple[float, float]]
) -> dict[tuple[str, int], float]:
    """Return for each half the factor that the other half's few rows like best."""
    found = {}
    few = tuning(chosen)
    for system, part in {(row.system, half(row)) for row in few}:
        others = [row for row in few if row.system == system and half(row) != part]

        def off(factor: float, others: list[Row] = others) -> float:
            errors = [abs(done[row.id, factor][0] / row.ttft - 1) for row in others]
            return float(np.median(errors))

        if others and all((row.id, f) in done for row in others for f in FACTORS):
            found[system, part] = min(FACTORS, key=off)
    return found


# --- tables ---


def errors(pairs: list[tuple[Row, tuple[float, float]]]) -> list[str]:
    cells = [f"{len(pairs):>4}"]
    for index, truth in ((1, "tpot"), (0, "ttft")):
        off = np.array([abs(found[index] / getattr(row, truth) - 1) for row, found in pairs])
        off = off[np.isfinite(off)]
        cells += (
            [f"{np.median(off):>7.1%}", f"{np.quantile(off, 0.9):>7.1%}"] if len(off) else ["", ""]
        )
    return cells


def table(title: str, sets: dict[str, list[tuple[Row, tuple[float, float]]]]) -> list[str]:
    lines = [title, ""]
    lines.append(f"{'':<32} rows   TPOT    p90    TTFT    p90")
    groups = sorted({row.group for pairs in sets.values() for row, _ in pairs})
    most = max(map(len, sets.values()))
    for name, pairs in sets.items():
        unfinished = "factor per" in name and len(pairs) < most
        lines.append(f"{name} ({len(pairs)} of {most} rows so far)" if unfinished else name)
        for group in groups:
            part = [pair for pair in pairs if pair[0].group == group]
            if part:
                lines.append(f"  {group:<30} {' '.join(errors(part))}")
        lines.append(f"  {'all':<30} {' '.join(errors(pairs))}")
    return [*lines, ""]


def write_tables(moe: bool) -> None:
    done, theirs = kept(RUNS), kept(ESTIMATES)
    lines = ["$ python benchmarks/fidelity_gpu.py --table", ""]
    chosen = rows()
    factors = best_factors(chosen, done)
    sets = {
        "simulated, no factor": [(r, done[r.id, 1.0]) for r in chosen if (r.id, 1.0) in done],
        "simulated, one factor per GPU, chosen on the other half": [
            (r, done[key])
            for r in chosen
            if (r.system, half(r)) in factors
            and (key := (r.id, factors[r.system, half(r)])) in done
        ],
        "aiconfigurator's own estimate": [
            (r, theirs[r.id, 1.0]) for r in chosen if (r.id, 1.0) in theirs
        ],
    }
    accepted = {r.id for r, found in sets["aiconfigurator's own estimate"] if found[0] == found[0]}
    if accepted:
        sets["simulated, no factor, the rows that it accepts"] = [
            pair for pair in sets["simulated, no factor"] if pair[0].id in accepted
        ]
    lines += table("Dense models: median and 90th percentile of the relative error", sets)
    said = ", ".join(
        f"{system} {'second' if part else 'first'} half x{factor}"
        for (system, part), factor in sorted(factors.items())
    )
    lines += [f"Factors: {said or 'none chosen yet'}.", ""]
    if moe:
        mixed = [(r, done[r.id, 1.0]) for r in rows(moe=True) if (r.id, 1.0) in done]
        lines += table("Mixtures of experts", {"simulated, no factor": mixed})
    TABLE.write_text("\n".join(lines))
    print(TABLE.read_text())


# --- aiconfigurator's own estimate, in a Python that has it ---

ASK = """
import json, sys, logging
logging.disable(logging.CRITICAL)
from aiconfigurator.cli.api import cli_estimate
for line in sys.stdin:
    r = json.loads(line)
    try:
        e = cli_estimate(r["model"], r["system"], backend_name="vllm", isl=r["isl"], osl=r["osl"],
            batch_size=r["concurrency"], tp_size=r["tp"], moe_tp_size=r["tp"] // r["ep"],
            moe_ep_size=r["ep"], gemm_quant_mode=r["quantization"] or None,
            moe_quant_mode=r["quantization"] or None)
        print("@", json.dumps([r["id"], e.ttft, e.tpot]), flush=True)
    except Exception as error:
        print("@", json.dumps([r["id"], None, str(error)[:200]]), flush=True)
"""


def estimate_all(python: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    known = kept(ESTIMATES)
    asked = [
        {**row.__dict__, "model": NAMES.get(row.model, row.model)}
        for row in sorted(rows(), key=lambda row: (row.concurrency, row.osl))
        if (row.id, 1.0) not in known
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen([python, "-c", ASK], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for item in asked:
            if time.monotonic() > end:
                break
            child.stdin.write(json.dumps(item) + "\n")
            child.stdin.flush()
            while not (line := child.stdout.readline()).startswith("@ "):
                assert line
            name, ttft, tpot = json.loads(line[2:])
            value = (float("nan"), float("nan")) if ttft is None else (ttft / 1000, tpot / 1000)
            keep(ESTIMATES, (name, 1.0), value)
        child.stdin.close()


def main() -> None:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--minutes", type=float, default=5.0)
    ask.add_argument("--moe", action="store_true")
    ask.add_argument("--estimates", metavar="PYTHON")
    ask.add_argument("--table", action="store_true")
    ask.add_argument("--only", default="", help="rows whose id contains this")
    chosen = ask.parse_args()
    if chosen.estimates:
        estimate_all(chosen.estimates, 60 * chosen.minutes)
    elif not chosen.table:
        todo = [row for row in rows(chosen.moe) if chosen.only in row.id]
        todo.sort(key=lambda row: row.concurrency * row.osl)
        plan = [(row, 1.0) for row in todo]
        if not chosen.moe:
            plan += [(row, f) for row in tuning(todo) for f in FACTORS]
            plan += [
                (row, best[row.system, half(row)])
                for best in [best_factors(rows(), kept(RUNS))]
                for row in todo
                if (row.system, half(row)) in best
            ]
        simulate_all(plan, 60 * chosen.minutes)
    write_tables(chosen.moe)


if __name__ == "__main__":
    main()
