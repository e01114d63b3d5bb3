"""What is left of the pacer's cost once it gave up: stock against ejected, twice.

First vLLM's real scheduler with no model, by the method of `observe_overhead.py`:
two schedulers in one process, stepped in turn, in processor time of the engine's
thread. Then one live engine in this process with a real forward pass, whose
scheduler is changed from block to block: stock, or a paced one that was ejected.
Both serve the same requests; the order alternates; the
interval is over blocks (pairs of them for the live engine).

Usage: python benchmarks/pacing_failopen.py [--quick]
"""

import json
import os
import sys
import time

import numpy as np
import observe_overhead as method

CASES = [(64, 10), (256, 10_000)]
PAIRS, REQUESTS, OUTPUT = 24, 24, 48


def interval(ratios: np.ndarray) -> tuple[float, float, float]:
    picks = np.random.default_rng(0).integers(0, len(ratios), (2000, len(ratios)))
    low, high = np.quantile(np.median(ratios[picks], axis=1), (0.025, 0.975))
    return float(np.median(ratios)), float(low), float(high)


def stepped(model, running: int, waiting: int, chunked: bool, blocks: int, steps: int) -> dict:
    from vllm.v1.core.sched.scheduler import Scheduler

    from chunkwise import PacedScheduler

    pair = [
        method.filled(build, model, running, waiting, chunked)
        for build in (Scheduler, PacedScheduler)
    ]
    pair[1]._eject("a benchmark asked for it")
    seconds = method.in_turn(pair, blocks, steps)
    pair[1].shutdown()
    stock, ours = np.median(seconds, axis=1).T
    ratio, low, high = interval(ours / stock)
    return {
        "what": f"{running} running, {waiting:,} waiting, "
        f"{'a chunk in each step' if chunked else 'decodes only'}",
        "stock": f"{np.median(stock) * 1e6:,.0f} µs a step",
        "ratio": ratio,
        "interval": [low, high],
    }


class Live:
    """One engine whose scheduler can be changed while nothing runs."""

    def __init__(self, model):
        from vllm import LLM

        llm = LLM(
            str(model),
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=True,
            enable_prefix_caching=False,  # two schedulers own the same blocks, one after another
            kv_cache_memory_bytes=2**29,
            max_model_len=4096,
            max_num_seqs=32,
            max_num_batched_tokens=2048,
            scheduler_cls="chunkwise.PacedScheduler",
        )
        self._engine = llm.llm_engine
        self._core = self._engine.engine_core.engine_core
        ejected = self._core.scheduler
        self.schedulers = {"stock": self._stock(ejected), "ejected": ejected}
        self._number = 0
        ejected._eject("a benchmark asked for it")
        for who in self.schedulers:
            self.block(who)  # to warm up
        assert type(self.schedulers["stock"]).__name__ == "Scheduler"

    def _stock(self, paced):
        from vllm.v1.core.sched.scheduler import Scheduler

        return Scheduler(
            vllm_config=paced.vllm_config,
            kv_cache_config=paced.kv_cache_config,
            structured_output_manager=paced.structured_output_manager,
            log_stats=paced.log_stats,
            block_size=paced.block_size,
            hash_block_size=paced.hash_block_size,
        )

    def block(self, who: str) -> tuple[float, float]:
        """Tokens a second, by the clock and by the thread's processor time."""
        from vllm import SamplingParams

        self._core.scheduler = self.schedulers[who]
        params = SamplingParams(max_tokens=OUTPUT, ignore_eos=True, detokenize=False)
        for number in range(REQUESTS):
            self._number += 1
            ids = [1 + (number * 31 + place) % 900 for place in range(20 + 60 * (number % 12))]
            self._engine.add_request(f"r{self._number}", {"prompt_token_ids": ids}, params)
        wall, cpu = time.monotonic(), time.process_time()
        ended = 0
        while self._engine.has_unfinished_requests():
            ended += sum(output.finished for output in self._engine.step())
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        self._engine.step()  # tells the model runner who has finished
        assert ended == REQUESTS
        return REQUESTS * OUTPUT / wall, REQUESTS * OUTPUT / cpu

    def compare(self, pairs: int) -> list[dict]:
        rates = np.zeros((pairs, 2, 2))  # pair, who, clock
        for pair in range(pairs):
            for who in (0, 1) if pair % 2 else (1, 0):
                rates[pair, who] = self.block(("stock", "ejected")[who])
        rows = []
        for clock, name in enumerate(("by the clock", "by processor time")):
            ratio, low, high = interval(rates[:, 1, clock] / rates[:, 0, clock])
            stock = np.median(rates[:, 0, clock])
            rows.append(
                {
                    "what": f"live engine, {name}",
                    "stock": f"{stock:,.0f} tokens/s",
                    "ratio": ratio,
                    "interval": [low, high],
                }
            )
        self._engine.engine_core.shutdown()
        return rows


def main() -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["CHUNKWISE"] = "on"
    os.environ["CHUNKWISE_ITL"] = "50ms"
    os.environ["CHUNKWISE_TTFT"] = "1s"
    from chunkwise.lab.models import timing_model

    quick = "--quick" in sys.argv
    blocks, steps = (8, 10) if quick else (method.BLOCKS, method.STEPS)
    model = timing_model("30m")
    rows = [
        stepped(model, *case, chunked, blocks, steps)
        for case in CASES[: 1 if quick else None]
        for chunked in (False, True)
    ]
    rows += Live(model).compare(4 if quick else PAIRS)
    lines = [
        "| | stock | ejected ÷ stock | 95% interval |",
        "|---|---:|---:|---:|",
    ]
    for row in rows:
        low, high = row["interval"]
        lines.append(
            f"| {row['what']} | {row['stock']} | {row['ratio']:.3f} | {low:.3f}–{high:.3f} |"
        )
    lines += ["", "Steps: a ratio over 1 is slower. Tokens a second: a ratio under 1 is slower."]
    print("\n".join(lines))
    if not quick:
        method.RESULTS.joinpath("pacing-failopen.md").write_text("\n".join(lines) + "\n")
        text = json.dumps({"rows": rows}, indent=2) + "\n"
        method.RESULTS.joinpath("pacing-failopen.json").write_text(text)


if __name__ == "__main__":
    main()
