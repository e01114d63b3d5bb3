"""One simulated run of pacing_capacity.py: which engine, which traffic, which arm, how good.

vLLM's real scheduler on a virtual clock, steps priced by silicon costs with 10%
noise. A run ends a minute after its last arrival: who has no first token by then
is late. Where only pass or fail is asked, it ends as soon as failing is certain
(more requests than may be bad already are, whatever comes); its share is then
the most it could have been. Results are kept run by run, on disk.
"""

import json
import os
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

PACED = "chunkwise.engine.scheduler.SimulatedScheduler"
SHARE, WARM_UP, NOISE = 0.9, 30.0, 0.1
LATEST, UNDER = 5.0, 0.1  # the guards: P99 of TTFT ÷ target, points a quartile may be below
DRAIN = 60.0  # seconds from the last arrival to the end of a run
LONGEST = 32_768
BATCH_SHARE = 0.2
CLASSES = "chat,batch:ttft=none:itl=none"


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


@cache
def machine_of(engine: Engine):
    from chunkwise.settings import Settings
    from chunkwise.sim.machine import on_gpu

    machine, settings = on_gpu(
        engine.model, engine.system, Settings(tensor_parallel_size=engine.tp)
    )
    ratios = np.exp(np.random.default_rng(0).normal(0, NOISE, 4096))
    return replace(machine, scatter=tuple(ratios.tolist())), settings


@cache
def traffic_of(traces: str, workload: str):
    """The trace; in the mix a fifth of the requests are batch, with prompts four times as long."""
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


def _poisson(rows, rate: float, seconds: float, rng) -> tuple:
    """The rows from a random place on, and times at this rate: the same for all arms."""
    start = int(rng.integers(0, len(rows)))
    count = max(50, int(rate * seconds))
    gaps = rng.exponential(1 / rate, count)
    return rows[(start + np.arange(count)) % len(rows)], np.cumsum(gaps) - gaps[0]


def arriving(traffic, when: dict, seed: int):
    """Poisson (`rate`), the trace's own pattern (`scale`), two classes at rates of their own
    (`chat`, `batch`), or all at once (`requests`), perhaps of one class (`only`)."""
    rng = np.random.default_rng(seed)
    if "rate" in when:
        rows, at = _poisson(np.arange(len(traffic)), when["rate"], when["seconds"], rng)
        return replace(traffic.only(rows), arrival=at)
    if "scale" in when:
        scaled = traffic.scaled(when["scale"])
        return scaled.only(np.flatnonzero(scaled.arrival < when["seconds"]))
    names = np.asarray(traffic.classes)
    if "chat" in when:
        parts = [
            _poisson(np.flatnonzero(names == name), when[name], when["seconds"], rng)
            for name in ("chat", "batch")
        ]
        rows, at = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(at, kind="stable")
        return replace(traffic.only(rows[order]), arrival=at[order])
    if "only" in when:
        traffic = traffic.only(np.flatnonzero(names == when["only"]))
    count = min(len(traffic), when["requests"])
    return replace(traffic.only(np.arange(count)), arrival=np.zeros(count))


def _promise(engine: Engine, arm: dict) -> None:
    """Tell the plug-in its targets. Order alone: nobody who comes has an inter-token target,
    but an unused class has, so that none is made up and chunks are the budget's."""
    os.environ |= {"CHUNKWISE": "on", "CHUNKWISE_TTFT": "1s", "CHUNKWISE_CLASSES": CLASSES}
    os.environ["CHUNKWISE_ITL"] = f"{engine.itl * 1000:.0f}ms"
    if arm.get("order"):
        del os.environ["CHUNKWISE_ITL"]
        os.environ["CHUNKWISE_CLASSES"] = CLASSES + ",nobody:itl=1s"


def scheduler_of(arm: dict) -> str | None:
    if "rule" in arm:
        return f"chunkwise.engine.rule_schedulers.{arm['rule']}"
    return PACED if arm.get("paced") or arm.get("order") else None


def run(
    traces: str, engine: Engine, workload: str, arm: dict, when: dict, seed: int, surely: bool
) -> dict:
    """Simulate one arm; `surely`: to the end even when it is certain to fail."""
    from chunkwise.cost.step import StepShape
    from chunkwise.sim.run import simulate

    began = time.process_time()
    machine, settings = machine_of(engine)
    traffic = arriving(traffic_of(traces, workload), when, seed)
    given = settings.to_llm()
    if "budget" in arm:
        given["max_num_batched_tokens"] = arm["budget"]
        given["max_num_seqs"] = min(given["max_num_seqs"], arm["budget"])
        given["long_prefill_token_threshold"] = arm["threshold"]
    _promise(engine, arm)
    prompts, places = np.unique(traffic.prompt, return_inverse=True)
    alone = [machine.cost.seconds(StepShape.of([(int(p), 0)])) for p in prompts]
    due = np.maximum(1.0, 3 * np.array(alone))[places]
    names = np.asarray(traffic.classes or ["chat"] * len(traffic))
    batch = names == "batch"
    judged = ~batch & (traffic.arrival >= (0 if "requests" in when else WARM_UP))
    last = np.inf if "requests" in when else float(traffic.arrival[-1])
    spare = 0.01 * np.maximum(0, traffic.output - 1)  # gaps that may pass the target

    quarter = np.full(len(traffic), -1)
    ranks = np.argsort(np.argsort(traffic.prompt[judged], kind="stable"), kind="stable")
    quarter[judged] = ranks * 4 // max(1, len(ranks))
    failed = False

    def stop(measured, now: float) -> bool:
        """Whether a minute has passed since the last arrival, or `keeps` is sure to be false."""
        nonlocal failed
        waited = np.where(measured.token_counts > 0, measured.ttft, now - measured.arrival)
        owners = np.repeat(np.arange(len(measured)), np.maximum(0, measured.token_counts - 1))
        over = np.bincount(owners[measured.gaps > engine.itl], minlength=len(measured))
        bad = (waited > due) | (over > spare)
        failed = not surely and (
            bad[judged].sum() > (1 - SHARE) * judged.sum()
            or (waited > LATEST * due)[judged].sum() > 0.01 * judged.sum()
            or any(
                bad[quarter == q].sum() > (1 - SHARE + UNDER) * (quarter == q).sum()
                for q in range(4)
            )
        )
        return bool(failed or now > last + DRAIN)

    found = simulate(
        traffic,
        type(settings)(**given),
        machine,
        scheduler_cls=scheduler_of(arm),
        seed=seed,
        stop=None if "requests" in when else stop,
    )
    measured = found.measured
    some = measured.token_counts > 0
    end = float(measured.token_times.max())
    waited = np.where(some, measured.ttft, np.maximum(0, end - measured.arrival))
    late = np.where(some, measured.ttft / due, np.inf)
    good = (late <= 1) & (measured.gap_quantile(0.99) <= engine.itl)
    if failed:  # given up: those to come may all be good
        good |= measured.arrival + due > end
        late = np.where(measured.arrival + due > end, 0.0, late)
    rate = len(measured) / end
    if "requests" in when:  # steady state: between the first and the last fifth to end
        early, late_end = np.quantile(measured.end_to_end, (0.2, 0.8))
        rate = 0.6 * len(measured) / float(late_end - early)
    # Work done for batch while requests came: its prompts begun to be answered, its tokens.
    until = min(last, end)
    owners = np.repeat(np.arange(len(measured)), measured.token_counts)
    inside = (measured.token_times >= WARM_UP) & (measured.token_times <= until)
    firsts = measured.arrival + np.where(some, measured.ttft, np.inf)
    begun = batch & (firsts >= WARM_UP) & (firsts <= until)
    work = (inside & batch[owners]).sum() + measured.prompt_tokens[begun].sum()
    return {
        "share": float(good[judged].mean()) if judged.any() else 0.0,
        "quartiles": [
            float(good[quarter == q].mean()) if (quarter == q).any() else 1.0 for q in range(4)
        ],
        "late_p99": min(1e6, float(np.quantile(late[judged], 0.99, method="higher")))
        if judged.any()
        else 0.0,
        "worst_wait": float(waited[judged].max()) if judged.any() else 0.0,
        "ttft_share": float((late[judged] <= 1).mean()) if judged.any() else 0.0,
        "rate": rate,
        "tokens": float((measured.prompt_tokens + measured.token_counts).mean()),
        "batch_tokens": float(work / max(1.0, until - WARM_UP)),
        "preemptions": found.preemptions,
        "steps": len(found.steps),
        "given_up": bool(failed),
        "core_seconds": round(time.process_time() - began, 2),
    }


def keeps(result: dict) -> bool:
    """Whether the promise was kept: for nine in ten, and with neither guard broken."""
    return (
        not result["given_up"]
        and result["share"] >= SHARE
        and result["late_p99"] <= LATEST
        and min(result["quartiles"]) >= SHARE - UNDER
    )


class OutOfTime(Exception):  # noqa: N818
    """No new run is to be started."""


class Kept:
    """Results by key, on disk after each run."""

    def __init__(self, path: Path, deadline: float):
        self._path = path
        self._deadline = deadline
        self._found = {}
        if path.is_file():
            for line in path.read_text().splitlines():
                row = json.loads(line)
                self._found[row["key"]] = row["result"]

    def get(self, traces, engine, workload, arm, when, seed, surely) -> dict:
        key = json.dumps([engine.name, workload, arm, when, seed, surely], sort_keys=True)
        if key not in self._found:
            if time.time() > self._deadline:
                raise OutOfTime
            self._found[key] = run(traces, engine, workload, arm, when, seed, surely)
            with self._path.open("a") as file:
                file.write(json.dumps({"key": key, "result": self._found[key]}) + "\n")
        return self._found[key]
