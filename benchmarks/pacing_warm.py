"""The first hundred steps beside answers, from nothing and from kernel times, in the simulator.

vLLM's own scheduler paced on a virtual clock; steps take what the tables of
the GPU's kernels say, times a factor (how wrong the expectation is), with a
tenth of noise. Said is the worst of the first hundred steps that carried prompts
beside answers, as a share of the inter-token target, over two seeds, and how many
requests of the first twenty seconds had their first token in time.

Usage: python benchmarks/pacing_warm.py
"""

import os
from dataclasses import replace

import numpy as np
import pacing_capacity as capacity

ENGINES = (
    *capacity.ENGINES,
    capacity.Engine("Qwen3-8B on L40S", "Qwen/Qwen3-8B", "l40s", 1, 0.075),
)
FACTORS = (0.7, 1.0, 1.3)
SEEDS = 2
EARLY, SECONDS, TTFT = 100, 20.0, 1.0


def traffic(rate: float, seed: int):
    from chunkwise.sim.traffic import Traffic

    rng = np.random.default_rng(seed)
    count = int(rate * SECONDS)
    prompts = np.clip(rng.lognormal(7.0, 0.9, count), 20, 8000).astype(int)
    outputs = np.clip(rng.lognormal(5.0, 0.6, count), 8, 600).astype(int)
    return Traffic(prompts, outputs, np.cumsum(rng.exponential(1 / rate, count)))


def run(engine, start, factor: float, seed: int) -> tuple[float, float]:
    from chunkwise.cost.step import StepShape
    from chunkwise.engine import watch_post
    from chunkwise.sim.run import simulate

    machine, settings = capacity.machine_of(engine)
    # Half of what the GPU can prefill, by its own price of an average prompt.
    alone = machine.cost.seconds(StepShape.of([(1600, 0)]))
    noisy = replace(machine, cost=Slower(capacity.Noisy(machine.cost, seed), factor))
    begin = watch_post.start_pacer
    watch_post.start_pacer = lambda *given: begin(*given[:-1], start)
    try:
        found = simulate(
            traffic(0.5 / alone / max(1.0, factor), seed),
            settings,
            noisy,
            scheduler_cls=capacity.PACED,
        )
    finally:
        watch_post.start_pacer = begin
    steps = found.steps
    mixed = (steps.decodes > 0) & (steps.prefill_tokens > 0)
    worst = float((steps.end - steps.start)[mixed][:EARLY].max()) / engine.itl
    return worst, float((found.measured.ttft <= TTFT).mean())


class Slower:
    """A cost times a factor."""

    def __init__(self, cost, factor: float):
        self._cost, self._factor = cost, factor
        self.provenance, self.error = cost.provenance, cost.error
        self.covers, self.largest_chunk = cost.covers, cost.largest_chunk

    def seconds(self, shape) -> float:
        return self._factor * self._cost.seconds(shape)


def main() -> None:
    from chunkwise.cost.expected import fitted_to

    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ["CHUNKWISE"] = "on"
    os.environ["CHUNKWISE_TTFT"] = f"{TTFT:.0f}s"
    lines = [
        "| engine | ITL | steps take | worst early step, from nothing | from kernel times "
        "| first token in time | |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    for engine in ENGINES:
        os.environ["CHUNKWISE_ITL"] = f"{engine.itl * 1000:.0f}ms"
        machine, settings = capacity.machine_of(engine)
        start = fitted_to(machine.cost, settings.max_num_batched_tokens, settings.max_num_seqs)
        for factor in FACTORS:
            cold = [run(engine, None, factor, seed) for seed in range(SEEDS)]
            warm = [run(engine, start, factor, seed) for seed in range(SEEDS)]
            lines.append(
                f"| {engine.name} | {engine.itl * 1000:.0f} ms | {factor:.1f} of the tables "
                f"| {max(worst for worst, _ in cold):.2f} of the target "
                f"| {max(worst for worst, _ in warm):.2f} "
                f"| {np.mean([share for _, share in cold]):.1%} "
                f"| {np.mean([share for _, share in warm]):.1%} |"
            )
            print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    capacity.TABLE.with_name("pacing-warm.md").write_text(text)


if __name__ == "__main__":
    main()
