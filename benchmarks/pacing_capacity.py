"""How much traffic keeps its promise: vLLM's default, the best static settings, paced.

The pacer knows nothing of the steps' costs and learns as it goes. A request is
good if its first token came within max(1 s, 3 x its unloaded prefill) and its P99
gap is within the target. A rate holds if 90% are good, the P99 of TTFT ÷ target
is at most 5, and no prompt-length quartile is more than ten points below.
Capacity: the highest rate that holds, in steps of 2.5% of the saturation rate,
Poisson arrivals for ten minutes, searched with one seed and lowered until it
holds with two seeds of three.
Paced comes first; two minutes at its capacity pick a cell's three likeliest static
settings; each of these has to hold one step above the best before it (first seed)
to be searched itself. The single static is the one with the best mean share in
those two minutes over all cells; `order` is our order and admission with that
static's budget, so that paced ÷ order is what sizing chunks adds. Runs are kept
one by one: it can be stopped (or stop itself, `--minutes`) and taken up again.
Usage: python benchmarks/pacing_capacity.py TRACES [--quick] [--processes 2] [--minutes 70]
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import fmean

from pacing_cells import ENGINES, WORKLOADS, Kept, OutOfTime, keeps, traffic_of
from pacing_table import table

RESULTS = Path(__file__).parent / "results"
BUDGETS = (256, 512, 768, 1024, 1280, 1536, 2048, 3072, 4096, 8192)
THRESHOLDS = (0, 256, 1024)
QUICK_STATICS = ((512, 0), (1280, 0), (1536, 0), (2048, 0), (2048, 256), (8192, 0))
STEP, MOST = 0.025, 42  # of the saturation rate: up to 1.05 of it
BURSTY = (0.5, 0.7, 0.9)  # of the saturation rate
CHAT_LOAD, BATCH_OFFERED = 0.5, 1.1  # of chat's own saturation; of what that leaves
DEFAULT, PACED = {}, {"paced": True}
ALL = len(ENGINES) * len(WORKLOADS)


def highest(holds, guess: int, most: int = MOST) -> int:
    """Return the highest step that holds: from the guess in growing strides, then between."""
    low, high, at, stride = 0, most + 1, max(1, min(most, guess)), 1
    while high - low > 1:
        if holds(at):
            low, at = at, at + stride
        else:
            high, at = at, at - stride
        stride *= 2
        if not low < at < high:
            at = (low + high) // 2
    return low


class Cell:
    """One engine and one workload. Usage: `Cell(task).first()`, later `Cell(task).rest(single)`."""

    def __init__(self, task):
        self.traces, self.engine, self.workload, self.quick, place, deadline = task
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        self.kept = Kept(Path(place), deadline)
        self.short, self.whole = (60, 150) if self.quick else (120, 600)
        self.seeds = 1 if self.quick else 3
        statics = QUICK_STATICS
        if not self.quick:
            statics = [(b, t) for b in BUDGETS for t in THRESHOLDS if t < b]
        self.statics = [{"budget": b, "threshold": t} for b, t in statics]

    def ask(self, arm, when, seed=0, surely=True):
        return self.kept.get(self.traces, self.engine, self.workload, arm, when, seed, surely)

    def saturated(self, **of) -> dict:
        """All at once, no promise: the better of two large budgets."""
        when = {"requests": 300 if self.quick else 1500, **of}
        arms = (DEFAULT, {"budget": 2048, "threshold": 0})
        return max((self.ask(arm, when) for arm in arms), key=lambda found: found["rate"])

    def holds(self, arm, step: int, seed: int) -> bool:
        rate = round(step * STEP * self.saturation, 4)
        return keeps(self.ask(arm, {"rate": rate, "seconds": self.whole}, seed, surely=False))

    def capacity(self, arm, guess: float) -> float:
        """The highest rate, as a share of the saturation rate: the first seed's, lowered until
        one of the other two holds as well, and so most of them."""
        step = highest(lambda step: self.holds(arm, step, 0), round(guess / STEP))
        others = range(1, self.seeds)
        while step and others and not any(self.holds(arm, step, seed) for seed in others):
            step -= 1
        return round(step * STEP, 4)

    def first(self) -> dict:
        """What the choice of statics needs: saturation, paced's capacity, the short windows."""
        self.saturation = self.saturated()["rate"]
        paced = self.capacity(PACED, 0.8)
        rate = (paced or 0.5) * self.saturation
        at = {"rate": round(rate, 4), "seconds": self.short}
        return {
            "engine": self.engine.name,
            "workload": self.workload,
            "saturation": self.saturation,
            "capacity": {"paced": paced},
            "screen": {name(arm): self.ask(arm, at)["share"] for arm in self.statics},
            "bursty": [],
        }

    def rest(self, single: dict | None) -> dict:
        """Everything else, of the single static only if given; without time, less."""
        found = self.first()
        try:
            self._rest(found, single)
        except OutOfTime:
            found["unfinished"] = True
        return found

    def _rest(self, found: dict, single: dict | None) -> None:
        capacities = found["capacity"]
        top = sorted(found["screen"], key=lambda arm: -found["screen"][arm])
        best = self._best(top[: 1 if self.quick else 3], capacities["paced"])
        found["static"], capacities["static"] = best
        capacities["default"] = self.capacity(DEFAULT, 0.4)
        arms = {"default": DEFAULT, "static": json.loads(best[0]), "paced": PACED}
        loads = BURSTY[1:2] if self.quick else BURSTY
        found["bursty"] = [{"load": load, **self._bursty(load, arms)} for load in loads]
        if self.workload == "mix":
            found["mix"] = self._mix(arms)
        if single is not None:
            order = {**single, "order": True}
            capacities["single"] = self.capacity(single, capacities["static"])
            capacities["order"] = self.capacity(order, capacities["paced"])
            for row in found["bursty"]:
                row |= self._bursty(row["load"], {"single": single, "order": order})

    def _best(self, names: list[str], guess: float) -> tuple[str, float]:
        best, most = names[0], self.capacity(json.loads(names[0]), guess)
        for other in names[1:]:
            arm, above = json.loads(other), round(most / STEP) + 1
            if above <= MOST and self.holds(arm, above, 0):
                got = self.capacity(arm, above * STEP)
                if got > most:
                    best, most = other, got
        return best, most

    def _bursty(self, load: float, arms: dict) -> dict:
        traffic = traffic_of(self.traces, self.workload)
        own = len(traffic) / float(traffic.arrival[-1])
        when = {"scale": round(load * self.saturation / own, 4), "seconds": self.whole}
        return {arm: self.ask(setting, when) for arm, setting in arms.items()}

    def _mix(self, arms: dict) -> dict:
        """Chat at half its own saturation, and more batch than the other half can do."""
        chat, batch = self.saturated(only="chat"), self.saturated(only="batch")
        left = (1 - CHAT_LOAD) * batch["rate"]
        when = {
            "chat": round(CHAT_LOAD * chat["rate"], 4),
            "batch": round(BATCH_OFFERED * left, 4),
            "seconds": self.whole,
        }
        return {"left": left * batch["tokens"]} | {
            arm: self.ask(setting, when) for arm, setting in arms.items()
        }


def name(arm: dict) -> str:
    return json.dumps(arm, sort_keys=True)


def rest(task, single: dict | None) -> dict | None:
    try:
        return Cell(task).rest(single)
    except OutOfTime:
        return None


def best_single(cells: list[dict]) -> dict:
    """The static setting with the best mean share over the cells."""
    screens = [cell["screen"] for cell in cells]
    return json.loads(max(screens[0], key=lambda arm: fmean(one[arm] for one in screens)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", help="folder with the public traces")
    parser.add_argument("--quick", action="store_true", help="one engine, two workloads")
    parser.add_argument("--only", default="", help="cells whose name contains this")
    parser.add_argument(
        "--single", action="store_true", help="the single static of the cells so far, before all"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e6, help="start no run after these")
    given = parser.parse_args()
    stem = "pacing-capacity-quick" if given.quick else "pacing-capacity"
    deadline = time.time() + 60 * given.minutes
    tasks = []
    for engine in ENGINES[:1] if given.quick else ENGINES:
        for workload in WORKLOADS[:2] if given.quick else WORKLOADS:
            if given.only not in f"{engine.name}, {workload}":
                continue
            place = RESULTS / f"{stem}-{engine.system}{engine.tp}-{workload}.jsonl"
            tasks.append((given.traces, engine, workload, given.quick, str(place), deadline))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(given.processes, len(tasks)), context) as pool:

        def write(cells: list[dict | None]) -> None:
            done = [cell for cell in cells if cell and "static" in cell]
            if done:
                shown = table(done, best_single(done), len(tasks) if given.quick else ALL)
                (RESULTS / f"{stem}.md").write_text(shown)
                (RESULTS / f"{stem}.json").write_text(json.dumps(done, indent=1) + "\n")

        cells = each(pool, rest, tasks, [None] * len(tasks), None, after=write)
        begun = [task for task, cell in zip(tasks, cells, strict=True) if cell]
        if not begun:
            sys.exit("There was no time for a single cell: give more --minutes.")
        if given.single or given.quick or len(begun) == ALL:
            found = [cell for cell in cells if cell]
            each(pool, rest, begun, found, best_single(found), after=write)
    print((RESULTS / f"{stem}.md").read_text())


def each(pool, work, tasks, known, *extra, after=lambda cells: None) -> list:
    """Do all, tell of each as it ends; return what is known of each task after that."""
    coming = {pool.submit(work, task, *extra): place for place, task in enumerate(tasks)}
    found = list(known)
    for done in as_completed(coming):
        place = coming[done]
        found[place] = done.result()
        after(found)
        shares = (found[place] or {}).get("capacity", "no time")
        print(f"{tasks[place][1].name}, {tasks[place][2]}: {shares}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    main()
