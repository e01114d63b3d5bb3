"""Compare simulated GPU serving with measured runs, and keep the table.

Which runs, and how each was served, is in `fidelity_rows.py`, before anything is
compared. Besides the plain simulation there are two corrections per GPU, a factor,
or a factor and a floor, on steps with prefill over 512 tokens; a row's are chosen
on the other half of its GPU's rows. Each result is kept, so that the run can be
stopped and taken up again.

Usage: .venv/bin/python benchmarks/fidelity_gpu.py [--minutes 5] [--moe]
       … --estimates OTHER_PYTHON   (one with the package `aiconfigurator`)
       … --table                    (only write the tables)
"""

import argparse
import csv
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from fidelity_rows import NAMES, Row, rows, run, why_not

RESULTS = Path(__file__).parent / "results"
RUNS = RESULTS / "fidelity_gpu.csv"
ESTIMATES = RESULTS / "fidelity_gpu_aiconfigurator.csv"
TABLE = RESULTS / "fidelity_gpu.txt"
# A floor is asked for if short prompts want this much more than long ones.
FLOOR_WORTH = 1.1
FLOORS = (0.02, 0.04, 0.06)
LONG = 4096

Correction = tuple[float, float]  # factor and floor, see StepTerms
Corrections = dict[tuple[str, int], Correction]  # by GPU and half
Pair = tuple[float, float]  # seconds to the first token and per further one
Kept = dict[tuple[str, Correction], Pair]
NONE: Correction = (1.0, 0.0)
NAN: Pair = (math.nan, math.nan)

# --- what is kept ---


def kept(file: Path) -> Kept:
    if not file.exists():
        return {}
    with file.open() as lines:
        return {
            (item["id"], (float(item["factor"]), float(item["floor"]))): (
                float(item["ttft"]),
                float(item["tpot"]),
            )
            for item in csv.DictReader(lines)
        }


def keep(file: Path, name: str, correction: Correction, value: Pair) -> None:
    new = not file.exists()
    with file.open("a") as out:
        if new:
            out.write("id,factor,floor,ttft,tpot\n")
        out.write(f"{name},{correction[0]},{correction[1]},{value[0]:.6g},{value[1]:.6g}\n")


def simulate_all(todo: Iterable[tuple[Row, Correction]], end: float) -> bool:
    """Simulate what is not kept yet; tell whether there was time for all."""
    done = kept(RUNS)
    for row, correction in todo:
        if (row.id, correction) in done:
            continue
        if time.monotonic() > end:
            print("out of time; run again to go on", file=sys.stderr)
            return False
        start = time.process_time()
        try:
            found = run(row, *correction)
        except Exception as error:  # a row that the cost source does not support
            print(f"{row.id}: {error}", file=sys.stderr)
            found = NAN
        done[row.id, correction] = found
        keep(RUNS, row.id, correction, found)
        print(
            f"{row.id} x{correction[0]} over {1000 * correction[1]:.0f} ms: "
            f"TTFT {found[0] / row.ttft - 1:+.1%} TPOT {found[1] / row.tpot - 1:+.1%} "
            f"({time.process_time() - start:.1f} s)",
            flush=True,
        )
    return True


# --- corrections, chosen on rows that are then not reported ---


def half(row: Row) -> int:
    """Say which half of its GPU's rows a row is in: by model, else precision, else TP."""
    if row.system == "h100_sxm":
        return int(row.model.startswith("Qwen"))
    if row.system == "b200_sxm":
        return int(row.quantization == "nvfp4")
    return int(row.tp in (2, 8))


def asked(chosen: Iterable[Row], done: Kept) -> float:
    """Return the median of measured over simulated TTFT, to a twentieth."""
    found = [row.ttft / done[row.id, NONE][0] for row in chosen]
    return round(20 * float(np.median(found))) / 20


def factors(chosen: list[Row], done: Kept) -> Corrections:
    """Return for each half the factor that the other half's rows ask for."""
    halves = sorted({(row.system, half(row)) for row in chosen})
    return {key: (asked(others(key, chosen), done), 0.0) for key in halves}


def others(key: tuple[str, int], chosen: list[Row]) -> list[Row]:
    return [row for row in chosen if row.system == key[0] and half(row) != key[1]]


def floor_trials(chosen: list[Row], done: Kept) -> dict[tuple[str, int], list[tuple[Row, float]]]:
    """Return for halves whose other half asks for a floor: the rows and the factor to try it on.

    Long prompts' steps are above any floor and give the factor; the floor is for
    the short prompts, and tried on those with small loads.
    """
    found = {}
    for key in sorted({(row.system, half(row)) for row in chosen}):
        there = others(key, chosen)
        factor = asked((row for row in there if row.isl >= LONG), done)
        short = [row for row in there if row.isl < LONG]
        if asked(short, done) > FLOOR_WORTH * factor:
            few = [row for row in short if row.concurrency <= 8 and row.osl <= 1024]
            found[key] = [(row, factor) for row in few]
    return found


def factors_and_floors(chosen: list[Row], done: Kept) -> Corrections:
    """Return the factors, and a floor where the other half's short prompts ask for one.

    Halves whose floor has not been tried yet are left out.
    """
    found = factors(chosen, done)
    for key, trials in floor_trials(chosen, done).items():
        if not all((row.id, (factor, f)) in done for row, factor in trials for f in FLOORS):
            del found[key]
            continue

        def off(floor: float, trials: list[tuple[Row, float]] = trials) -> float:
            tried = [done[r.id, (f, floor)][0] / r.ttft for r, f in trials]
            return float(np.median(np.abs(np.log(tried))))

        found[key] = (trials[0][1], min(FLOORS, key=off))
    return found


def plan(chosen: list[Row], end: float) -> None:
    """Simulate all: plain, with the factor, the floor's trials, with factor and floor."""
    if not simulate_all([(row, NONE) for row in chosen], end):
        return
    all_rows, done = rows(), kept(RUNS)
    if not all((row.id, NONE) in done for row in all_rows):
        return
    by_half = factors(all_rows, done)
    trials = floor_trials(all_rows, done).values()
    todo = [(row, by_half[row.system, half(row)]) for row in chosen]
    todo += [(row, (f, floor)) for some in trials for row, f in some for floor in FLOORS]
    if simulate_all(todo, end):
        by_half = factors_and_floors(all_rows, kept(RUNS))
        simulate_all([(row, by_half[row.system, half(row)]) for row in chosen], end)


# --- tables ---

Set = list[tuple[Row, Pair]]


def errors(pairs: Set) -> list[str]:
    cells = [f"{len(pairs):>4}"]
    for index, truth in ((1, "tpot"), (0, "ttft")):
        off = np.array([abs(found[index] / getattr(row, truth) - 1) for row, found in pairs])
        off = off[np.isfinite(off)]
        cells += (
            [f"{np.median(off):>7.1%}", f"{np.quantile(off, 0.9):>7.1%}"] if len(off) else ["", ""]
        )
    return cells


def table(title: str, sets: dict[str, Set], total: int) -> list[str]:
    lines = [title, ""]
    lines.append(f"{'':<32} rows   TPOT    p90    TTFT    p90")
    groups = sorted({row.group for pairs in sets.values() for row, _ in pairs})
    for name, pairs in sets.items():
        if not pairs:
            continue
        lines.append(f"{name} ({len(pairs)} of {total} rows)" if len(pairs) < total else name)
        for group in groups:
            part = [pair for pair in pairs if pair[0].group == group]
            if part:
                lines.append(f"  {group:<30} {' '.join(errors(part))}")
        lines.append(f"  {'all':<30} {' '.join(errors(pairs))}")
    return [*lines, ""]


def found_in(results: Kept, chosen: list[Row], by: Corrections | None = None) -> Set:
    """Return the rows that have a result, plain or with their half's correction."""
    found = []
    for row in chosen:
        correction = NONE if by is None else by.get((row.system, half(row)))
        pair = NAN if correction is None else results.get((row.id, correction), NAN)
        if not math.isnan(pair[0]):
            found.append((row, pair))
    return found


def dense_tables(done: Kept, theirs: Kept) -> list[str]:
    chosen = rows()
    plain, estimates = found_in(done, chosen), found_in(theirs, chosen)
    sets = {"simulated, no correction": plain}
    chosen_by: dict[str, Corrections] = {}
    if len(plain) == len(chosen):
        chosen_by = {
            "simulated, one factor per GPU": factors(chosen, done),
            "simulated, one factor and one floor per GPU": factors_and_floors(chosen, done),
        }
        sets |= {name: found_in(done, chosen, by) for name, by in chosen_by.items()}
    sets["aiconfigurator's own estimate"] = estimates
    accepted = {row.id for row, _ in estimates}
    sets["simulated, no correction, the rows that it accepts"] = [
        pair for pair in plain if pair[0].id in accepted
    ]
    lines = table(
        "Dense models: median and 90th percentile of the relative error", sets, len(chosen)
    )
    for name, by in chosen_by.items():
        said = [
            f"{system.split('_')[0].upper()} {_half_name(system, part)} x{factor:.2f}"
            + (f" and at least {1000 * floor:.0f} ms" if floor else "")
            for (system, part), (factor, floor) in sorted(by.items())
        ]
        lines.append(f"{name}, chosen on the other half: {', '.join(said)}.")
    return [*lines, ""]


def _half_name(system: str, part: int) -> str:
    names = {
        "h100_sxm": ("Llama", "Qwen"),
        "b200_sxm": ("fp8", "nvfp4"),
        "h200_sxm": ("TP 1 and 4", "TP 2 and 8"),
    }
    return names[system][part]


def moe_tables(done: Kept, theirs: Kept) -> list[str]:
    chosen = rows(moe=True)
    sets = {
        "simulated, no correction": found_in(done, chosen),
        "aiconfigurator's own estimate": found_in(theirs, chosen),
    }
    have = [{row.id for row, _ in pairs} for pairs in sets.values()]
    sets["simulated, the rows that it accepts"] = [
        pair for pair in sets["simulated, no correction"] if pair[0].id in have[1]
    ]
    lines = table("Mixtures of experts, and Llama-3.1-8B", sets, len(chosen))
    missing = Counter(
        (row.group, why_not(row) or ("no costs" if (row.id, NONE) in done else "not run yet"))
        for row in chosen
        if row.id not in have[0]
    )
    lines.append("Not simulated:")
    lines += [f"  {count:>3} {group}: {why}" for (group, why), count in sorted(missing.items())]
    return [*lines, ""]


def write_tables() -> None:
    done, theirs = kept(RUNS), kept(ESTIMATES)
    lines = ["$ python benchmarks/fidelity_gpu.py --table", ""]
    TABLE.write_text("\n".join(lines + dense_tables(done, theirs) + moe_tables(done, theirs)))
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


def estimate_all(python: str, chosen: list[Row], end: float) -> None:
    known = kept(ESTIMATES)
    questions = [
        {**row.__dict__, "model": NAMES.get(row.model, row.model)}
        for row in chosen
        if (row.id, NONE) not in known
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen([python, "-c", ASK], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for item in questions:
            if time.monotonic() > end:
                break
            child.stdin.write(json.dumps(item) + "\n")
            child.stdin.flush()
            while not (line := child.stdout.readline()).startswith("@ "):
                assert line
            name, ttft, tpot = json.loads(line[2:])
            value = NAN if ttft is None else (ttft / 1000, tpot / 1000)
            keep(ESTIMATES, name, NONE, value)
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
    end = time.monotonic() + 60 * chosen.minutes
    todo = [row for row in rows(chosen.moe) if chosen.only in row.id]
    todo.sort(key=lambda row: row.concurrency * row.osl)
    if chosen.estimates:
        estimate_all(chosen.estimates, todo, end)
    elif chosen.moe and not chosen.table:
        simulate_all([(row, NONE) for row in todo if why_not(row) is None], end)
    elif not chosen.table:
        plan(todo, end)
    write_tables()


if __name__ == "__main__":
    main()
