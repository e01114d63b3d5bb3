"""What a step costs on GPUs: the known figures, monotony, speed, KV pools; kept as tables.

Needs the extra `plan`; no GPU. Usage: python benchmarks/cost_silicon.py
"""

import time
from itertools import pairwise, product
from pathlib import Path

from aiconfigurator_core.sdk.engine import EngineHandle, compile_engine

from chunkwise.cost import memory, silicon
from chunkwise.cost.graphs import StepTerms
from chunkwise.cost.shape import read_shape
from chunkwise.cost.step import StepShape

RESULTS = Path(__file__).parent / "results"
CASES = (
    ("H100, Qwen3-8B", "Qwen/Qwen3-8B", "h100_sxm", 1),
    ("H100 x4, Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-70B", "h100_sxm", 4),
    ("A100, Qwen3-8B", "Qwen/Qwen3-8B", "a100_sxm", 1),
)
TOKENS = (128, 512, 2048, 8192)
CONTEXTS = (0, 4096, 16_384, 65_536)
KERNELS_ONLY = StepTerms(0, 0, 512, 0, 0, 0, 0)
POOLS = [
    *product(
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B"), ("l40s", "a100_sxm", "h100_sxm", "b200_sxm"), (1, 2)
    ),
    *product(("Qwen/Qwen3-32B",), ("h100_sxm", "h200_sxm", "b200_sxm"), (1, 2)),
    *product(("meta-llama/Meta-Llama-3.1-8B",), ("h100_sxm", "l40s"), (1,)),
    *product(("meta-llama/Meta-Llama-3.1-70B",), ("h100_sxm", "h200_sxm", "b200_sxm"), (4, 8)),
]


def main() -> None:
    keep("cost-silicon.txt", [*figures(), *monotony(), *speed()])
    keep("cost-silicon-deep.txt", deep())
    keep("cost-silicon-pools.txt", pools())


def keep(name: str, lines: list[str]) -> None:
    (RESULTS / name).write_text("\n".join(["$ python benchmarks/cost_silicon.py", "", *lines, ""]))
    print("\n".join(lines), flush=True)


def figures() -> list[str]:
    """Beside the estimator's own calls, which spread a prompt's attention over its chunks."""
    lines = ["Kernel milliseconds of a step: the tables' own estimator / these curves"]
    for name, model, system, devices in CASES:
        raw = EngineHandle(
            compile_engine(model, system, "vllm", tp_size=devices, moe_tp_size=devices)
        )
        cost = silicon.load(model, system, devices, terms=KERNELS_ONLY)
        lines.append(f"  {name} (curves within {cost.table_error:.1%} of the tables, median)")

        def row(title: str, pairs: list[tuple[float, StepShape]], cost=cost) -> str:
            cells = (f"{theirs:6.1f} / {cost.seconds(s) * 1e3:6.1f}" for theirs, s in pairs)
            return f"    {title:<38}" + "   ".join(cells)

        for title, decodes in (
            ("prefill 128/512/2048/8192, no decodes", 0),
            ("the same with 128 decodes", 128),
        ):
            lines.append(
                row(
                    title,
                    [
                        (
                            raw.mixed_step_latency(n, decodes, 4096, 1),
                            average_chunk(n).with_decodes(decodes, decodes * 4097),
                        )
                        for n in TOKENS
                    ],
                )
            )
        lines.append(
            row(
                "2048 tokens at context 0/4k/16k/64k",
                [
                    (raw.predict_prefill_latency(1, c + 2048, c), StepShape.of([(2048, c)]))
                    for c in CONTEXTS
                ],
            )
        )
    return [*lines, ""]


def average_chunk(tokens: int) -> StepShape:
    """Of a prompt of 4,096 tokens; beyond its length, several whole ones."""
    if tokens > 4096:
        return StepShape.of([(4096, 0)] * (tokens // 4096))
    return StepShape.of([(tokens, 2048 - tokens // 2)])


def monotony() -> list[str]:
    lines = ["Dips (a step cheaper than a smaller one) over a grid of tokens, contexts and decodes"]
    models = (
        ("Qwen/Qwen3-8B", 1),
        ("meta-llama/Meta-Llama-3.1-70B", 8),
        ("openai/gpt-oss-120b", 2),
    )
    for system in silicon.systems():
        for model, devices in models:
            try:
                cost = silicon.load(model, system, devices)
            except Exception as error:  # no tables for it
                lines.append(f"  {system:<20} {model:<32} {str(error)[:90]}")
                continue
            raw = EngineHandle(
                compile_engine(model, system, "vllm", tp_size=devices, moe_tp_size=devices)
            )
            sizes = range(64, 4097, 64)
            prices = [cost.seconds(StepShape.of([(n, 1024)])) for n in sizes]
            theirs = [raw.predict_prefill_latency(1, 1024 + n, 1024) for n in sizes]
            dips = sum(
                cost.seconds(s) > cost.seconds(t) * (1 + 1e-9) for s, t in neighbours()
            ) + falls(prices)
            lines.append(
                f"  {system:<20} {model:<32} dips: {dips} (raw tables over the same chunks: "
                f"{falls(theirs)} of {len(theirs) - 1})"
            )
    return [*lines, ""]


def falls(values: list[float]) -> int:
    return sum(b < a * (1 - 1e-9) for a, b in pairwise(values))


def neighbours():
    for tokens, context, decodes in product(
        (0, 1, 100, 511, 512, 2000), (0, 900, 30_000), (0, 7, 128, 600)
    ):
        shape = StepShape.of([(tokens, context)]).with_decodes(decodes, decodes * 700)
        yield shape, shape.with_chunk(1, 0)
        yield shape, shape.with_decode(1)
        if tokens:
            for more, deeper in ((1, 0), (0, 1), (0, 1000)):
                yield (
                    shape,
                    StepShape.of([(tokens + more, context + deeper)]).with_decodes(
                        decodes, decodes * 700
                    ),
                )


def speed() -> list[str]:
    cost = silicon.load("Qwen/Qwen3-8B", "h100_sxm")
    shape = StepShape.of([(512, 3000)]).with_decodes(64, 64_000)
    largest = best(lambda: cost.largest_chunk(shape, 0.05, 1000, 8192), 200)
    return [
        "Microseconds a call (best of 20 x 2,000 calls, after loading)",
        f"  seconds(mixed step)          {best(lambda: cost.seconds(shape)):6.1f}",
        f"  largest_chunk(at most 8192)  {largest:6.1f}",
        f"  StepShape.with_chunk         {best(lambda: shape.with_chunk(256, 1000)):6.1f}",
    ]


def best(call, times: int = 2000) -> float:
    found = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(times):
            call()
        found.append((time.perf_counter() - start) / times)
    return min(found) * 1e6


def deep() -> list[str]:
    cost = silicon.load("Qwen/Qwen3-8B", "h100_sxm")
    first = cost.seconds(StepShape.of([(2048, 0)]))
    lines = ["Qwen3-8B on an H100: a chunk of 2,048 tokens, by the context before it"]
    for context in (0, 4096, 16_384, 32_768, 65_536, 131_072):
        seconds = cost.seconds(StepShape.of([(2048, context)]))
        most = cost.largest_chunk(StepShape().with_decodes(32, 32 * 1024), 0.050, context, 8192)
        lines.append(
            f"  context {context:>7,}: {seconds * 1e3:6.1f} ms, {seconds / first:4.1f} times as "
            f"long; 50 ms beside 32 decodes buys {most:>5,} tokens"
        )
    return lines


def pools() -> list[str]:
    lines = ["Tokens of KV cache on each device, budget 8,192, fraction 0.92"]
    off = []
    for model, system, devices in POOLS:
        total, other = silicon.device_memory(system, devices)
        shape = read_shape(str(silicon.config_file(model)))
        ours = memory.pool(shape, total, 0.92, 8192, other=other, tp=devices).tokens
        theirs = silicon.kv_pool(model, system, devices, 0.92, 8192).tokens
        apart = f"{ours / theirs - 1:+7.1%}" if theirs else "  (none)"
        off += [abs(ours / theirs - 1)] if theirs else []
        lines.append(
            f"  {model:<30} {system:<10} x{devices}  ours {ours:>10,}  aiconfigurator "
            f"{theirs:>10,}  {apart}"
        )
    off.sort()
    lines.append(
        f"  apart: median {off[len(off) // 2]:.1%}, largest {off[-1]:.1%}, {len(POOLS)} rows"
    )
    return lines


if __name__ == "__main__":
    main()
