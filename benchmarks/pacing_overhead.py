"""What observing and acting cost: vLLM's real scheduler with no model, paced and stock.

The method is that of `observe_overhead.py`: two schedulers in one process take
the same requests and are stepped in turn; timed are `schedule()` and
`update_from_output()` in processor time of the engine's thread. Means within a
block of steps, because some of our work is done in one step of four; then the
median over blocks. The first thousand steps teach the pacer most, and have a row of
their own; the others come after them. Where prompts compete for room, stock vLLM would do something
else in the same step: there only our own functions are timed, from within.

Usage: python benchmarks/pacing_overhead.py [--quick]
"""

import json
import os
import sys

import numpy as np
import observe_overhead as method

CASES = [(64, 10), (64, 10_000), (256, 10), (256, 10_000)]
DECODES, CHUNKS, LEARNING = "decodes only", "a chunk in each", "a chunk in each, the first ones"
SETTLES = 1_100  # steps


def compare(model, running: int, waiting: int, kind: str, blocks: int, steps: int) -> dict:
    from vllm.v1.core.sched.scheduler import Scheduler

    from chunkwise import PacedScheduler

    pair = [
        method.filled(build, model, running, waiting, kind != DECODES)
        for build in (Scheduler, PacedScheduler)
    ]
    assert pair[1]._pacer is not None
    if kind != LEARNING:
        for _ in range(SETTLES):
            for one in pair:
                method.timed(one)
    seconds = method.in_turn(pair, blocks, steps)
    assert pair[1]._pacer is not None, "it gave up"
    inside = spent_inside(pair[1])
    pair[1].shutdown()
    stock, ours = np.mean(seconds, axis=1).T
    extra, ratio = ours - stock, ours / stock
    picks = np.random.default_rng(0).integers(0, blocks, (2000, blocks))
    low, high = np.quantile(np.median(extra[picks], axis=1), (0.025, 0.975))
    return {
        "running": running,
        "waiting": waiting,
        "steps": kind,
        "stock_us": float(np.median(stock)) * 1e6,
        "extra_us": float(np.median(extra)) * 1e6,
        "extra_us_interval": [low * 1e6, high * 1e6],
        "inside_us": inside * 1e6,
        "share": float(np.median(ratio)) - 1,
    }


def spent_inside(scheduler, steps: int = 150) -> float:
    """Processor seconds of a step in our own functions, timed from within."""
    spent = [0.0]

    def watched(function):
        def call(*args):
            start = method.time.thread_time()
            found = function(*args)
            spent[0] += method.time.thread_time() - start
            return found

        return call

    watcher, pacer = scheduler._watcher, scheduler._pacer
    watcher.scheduled, watcher.updated = watched(watcher.scheduled), watched(watcher.updated)
    for name in ("set_levers", "restore", "scheduled", "ended"):
        setattr(pacer, name, watched(getattr(pacer, name)))
    empty = watched(lambda: None)
    found = []
    for _ in range(steps):
        spent[0] = 0.0
        for _ in range(6):
            empty()
        clock, spent[0] = spent[0], 0.0
        method.timed(scheduler)
        found.append(spent[0] - clock)
    return float(np.mean(sorted(found)[: -steps // 20]))  # a twentieth is the machine's


def competing(model, running: int, waiting: int) -> dict:
    """Slots are free, and the pool has room for few of those who wait: all are considered."""
    from tests.engine import no_model

    from chunkwise import PacedScheduler

    config = no_model.configuration(
        model, max_num_seqs=2 * running, long_prefill_token_threshold=method.CHUNK
    )
    scheduler = no_model.scheduler(PacedScheduler, config, blocks=running * 20 + 600)
    feed = no_model.Feed()
    for index in range(running):
        scheduler.add_request(feed(f"run-{index}", 100 + index % 50, 8_000))
    while any(r.num_output_tokens == 0 for r in scheduler.requests.values()):
        no_model.step(scheduler)
    for index in range(waiting):
        scheduler.add_request(feed(f"wait-{index}", 8_000, 100))
    method.timed(scheduler)
    inside = spent_inside(scheduler)
    assert scheduler._pacer is not None, "it gave up"
    assert len(scheduler.running) < 2 * running, "they did not compete"
    scheduler.shutdown()
    return {"running": running, "waiting": waiting, "inside_us": inside * 1e6}


def main() -> None:
    from chunkwise.lab.models import timing_model

    os.environ["CHUNKWISE"] = "on"
    os.environ["CHUNKWISE_ITL"] = "50ms"
    os.environ["CHUNKWISE_TTFT"] = "1s"
    quick = "--quick" in sys.argv
    blocks, steps = (10, 10) if quick else (method.BLOCKS, method.STEPS)
    model = timing_model("30m")
    rows = [
        compare(model, *case, kind, blocks, steps)
        for case in (CASES[1:2] if quick else CASES)
        for kind in (DECODES, CHUNKS)
    ]
    rows.append(compare(model, *CASES[0], LEARNING, blocks, steps))
    lines = [
        "| running | waiting | steps | vLLM alone | paced | of it in our code |",
        "|---:|---:|---|---:|---:|---:|",
    ]
    for row in rows:
        low, high = row["extra_us_interval"]
        lines.append(
            f"| {row['running']} | {row['waiting']:,} | {row['steps']} | {row['stock_us']:,.0f} µs "
            f"| {row['extra_us']:+.0f} µs ({low:+.0f} to {high:+.0f}), {row['share']:+.1%} "
            f"| {row['inside_us']:.1f} µs, {row['inside_us'] / row['stock_us']:.1%} |"
        )
    rivals = [competing(model, *case) for case in (CASES[1:2] if quick else CASES)]
    lines += ["", "| running | waiting, with free slots | in our code |", "|---:|---:|---:|"]
    lines += [
        f"| {row['running']} | {row['waiting']:,} | {row['inside_us']:.1f} µs |" for row in rivals
    ]
    print("\n".join(lines))
    if not quick:
        method.RESULTS.joinpath("pacing-overhead.md").write_text("\n".join(lines) + "\n")
        text = json.dumps({"rows": rows, "competing": rivals}, indent=2) + "\n"
        method.RESULTS.joinpath("pacing-overhead.json").write_text(text)


if __name__ == "__main__":
    main()
