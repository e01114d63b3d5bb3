"""What observing costs: vLLM's real scheduler with no model, with the plug-in and without.

Two schedulers in one process take the same requests and are stepped in turn, so
that the machine's moods hit both alike. Timed are `schedule()` and
`update_from_output()`, in processor time of the engine's thread: other programs
on the machine do not count. The interval is over the medians of blocks of steps.
The thread that writes is timed apart, because it runs beside the step.

Usage: python benchmarks/observe_overhead.py
"""

import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
sys.path.insert(0, str(ROOT))
os.environ["CHUNKWISE"] = "observe"
os.environ["CHUNKWISE_DIR"] = tempfile.mkdtemp(prefix="chunkwise-overhead-")

BLOCKS, STEPS = 40, 20
CHUNK = 2  # tokens: so that one prompt of 8,000 lasts for all steps
CASES = [(64, 10), (64, 10_000), (256, 10), (256, 10_000)]


def filled(build, model: Path, running: int, waiting: int, chunked: bool):
    """A scheduler in its steady state: so many decode, so many wait."""
    from tests.engine import no_model

    seqs = running + chunked
    config = no_model.configuration(model, max_num_seqs=seqs, long_prefill_token_threshold=CHUNK)
    scheduler = no_model.scheduler(build, config, blocks=60_000)
    feed = no_model.Feed()
    for index in range(running):
        scheduler.add_request(feed(f"run-{index}", 100 + index % 50, 8_000))
    while any(r.num_output_tokens == 0 for r in scheduler.requests.values()):
        no_model.step(scheduler)
    if chunked:  # one is admitted, and takes a chunk in every step that follows
        scheduler.add_request(feed("long", 8_000, 100))
        no_model.step(scheduler)
    for index in range(waiting):
        scheduler.add_request(feed(f"wait-{index}", 32, 100))
    return scheduler


def timed(scheduler) -> float:
    from tests.engine import no_model

    start = time.thread_time()
    output = scheduler.schedule()
    middle = time.thread_time()
    answer = no_model.result(scheduler, output)
    again = time.thread_time()
    scheduler.update_from_output(output, answer)
    return time.thread_time() - again + middle - start


def in_turn(pair: list, blocks: int, steps: int) -> np.ndarray:
    """Step two schedulers in turn; return each one's seconds: [blocks, steps, 2]."""
    gc.collect()
    gc.freeze()
    seconds = np.zeros((blocks, steps, 2))
    for block in range(blocks):
        for step in range(steps):
            for who in (0, 1) if (block + step) % 2 else (1, 0):
                seconds[block, step, who] = timed(pair[who])
    return seconds


def compare(model: Path, running: int, waiting: int, chunked: bool) -> dict:
    from vllm.v1.core.sched.scheduler import Scheduler

    from chunkwise import PacedScheduler

    pair = [
        filled(build, model, running, waiting, chunked) for build in (Scheduler, PacedScheduler)
    ]
    assert pair[1]._watcher is not None
    seconds = in_turn(pair, BLOCKS, STEPS)
    inside = spent_inside(pair[1])
    pair[1].shutdown()
    stock, ours = np.median(seconds, axis=1).T  # [blocks]
    extra, ratio = ours - stock, ours / stock
    rng = np.random.default_rng(0)
    picks = rng.integers(0, BLOCKS, (2000, BLOCKS))
    low, high = np.quantile(np.median(extra[picks], axis=1), (0.025, 0.975))
    low_ratio, high_ratio = np.quantile(np.median(ratio[picks], axis=1), (0.025, 0.975))
    return {
        "running": running,
        "waiting": waiting,
        "steps": "a chunk in each" if chunked else "decodes only",
        "stock_us": float(np.median(stock)) * 1e6,
        "extra_us": float(np.median(extra)) * 1e6,
        "extra_us_interval": [low * 1e6, high * 1e6],
        "inside_us": inside * 1e6,
        "share": float(np.median(ratio)) - 1,
        "share_interval": [low_ratio - 1, high_ratio - 1],
    }


def spent_inside(scheduler, steps: int = 150) -> float:
    """Seconds of a step that are spent in our own functions, timed from within."""
    watcher = scheduler._watcher
    spent = [0.0]

    def watched(function):
        def call(*args):
            start = time.thread_time()
            function(*args)
            spent[0] += time.thread_time() - start

        return call

    watcher.scheduled, watcher.updated = watched(watcher.scheduled), watched(watcher.updated)
    empty = watched(lambda: None)
    found = []
    for _ in range(steps):
        spent[0] = 0.0
        empty(), empty()
        clock, spent[0] = spent[0], 0.0
        timed(scheduler)
        found.append(spent[0] - clock)
    return float(np.median(found))


def beside_the_step(model: Path) -> float:
    """Processor microseconds of the writing thread for one step's record."""
    from chunkwise.engine.capture import CaptureFiles
    from chunkwise.engine.exporter import Exporter
    from chunkwise.observed import Chunk, Header, Step

    header = Header("cost", "cost", time.time(), itl=0.05)
    parts = [CaptureFiles(Path(os.environ["CHUNKWISE_DIR"]), header), Exporter(header)]
    count = 5_000
    start = time.thread_time()
    for number in range(count):
        step = Step(number, number / 50, 0.02, (Chunk(number, 512, 1024),), 256, 256, 300_000)
        for part in parts:
            part.take(step)
        if number % 25 == 24:
            for part in parts:
                part.flush(0)
    spent = time.thread_time() - start
    for part in parts:
        part.close()
    return spent / count * 1e6


def main() -> None:
    from chunkwise.lab.models import timing_model

    model = timing_model("30m")
    rows = [compare(model, *case, chunked) for case in CASES for chunked in (False, True)]
    thread = beside_the_step(model)
    lines = [
        "| running | waiting | steps | vLLM alone | with observing | of it in our code |",
        "|---:|---:|---|---:|---:|---:|",
    ]
    for row in rows:
        low, high = row["extra_us_interval"]
        lines.append(
            f"| {row['running']} | {row['waiting']:,} | {row['steps']} | {row['stock_us']:,.0f} µs "
            f"| {row['extra_us']:+.0f} µs ({low:+.0f} to {high:+.0f}), {row['share']:+.1%} "
            f"| {row['inside_us']:.1f} µs, {row['inside_us'] / row['stock_us']:.1%} |"
        )
    lines += ["", f"Beside the step, the writing thread takes {thread:.0f} µs a record."]
    print("\n".join(lines))
    RESULTS.joinpath("observe-overhead.md").write_text("\n".join(lines) + "\n")
    content = {"rows": rows, "thread_us_a_record": thread}
    RESULTS.joinpath("observe-overhead.json").write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
