"""The demos' tables: what those streaming and those waiting saw."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from chunkwise.durations import say
from chunkwise.lab.demo import ArmResult
from chunkwise.report.terminal import bar, print_lines, print_table

BAR_WIDTH = 16


def show_simple(engine: Mapping[str, Any], prompts: Sequence[Mapping[str, Any]]) -> None:
    """Write the table of the four prompts."""
    budget = engine["resolved"]["budget"]
    print_table(
        f"Four prompts, budget {budget:,} tokens a step",
        ["prompt tokens", "prefill steps", "chunks", "time", "answer"],
        text={2, 4},
        rows=[
            [
                f"{item['prompt_tokens']:,}",
                f"{len(item['chunks'])}",
                _sum(item["chunks"]),
                say(item["seconds"]),
                _first_words(item["text"]),
            ]
            for item in prompts
        ],
    )
    print_lines(
        [
            f"Steps and chunks are what the engine scheduled. vLLM's own default budget here is "
            f"{engine['default_budget']:,} tokens, which would cut none of these prompts."
        ]
    )


def show_streams(
    scenario: Mapping[str, Any], results: Sequence[ArmResult], sentences: list[str], chart: bool
) -> None:
    """Write what each arm did to whom, and the sentences that follow."""

    print_lines(
        [
            f"Three small requests are streaming; then two prompts of "
            f"{scenario['long_prompt']:,} tokens arrive, with three small ones right behind.",
            *(
                []
                if scenario["long_enough"]
                else ["The model's context is too short for twice vLLM's default budget."]
            ),
            "",
        ]
    )
    print_table(
        "What they saw",
        [
            "budget",
            "streaming: worst gap",
            "waiting: first token",
            "chunks a long prompt",
            "total",
        ],
        [
            [
                item.name,
                say(item.worst_gap),
                say(item.waiting_ttft),
                f"{item.chunks_per_long:.0f}",
                say(item.seconds),
            ]
            for item in results
        ],
    )
    print_table(
        "Averages",
        ["budget", "small: to the end", "long: first token", "long: to the end", "tokens/s"],
        [
            [
                item.name,
                say(item.small_mean),
                say(item.long_ttft),
                say(item.long_mean),
                f"{item.tokens_per_second:,.0f}",
            ]
            for item in results
        ],
    )
    if chart:
        _show_chart(results)
    print_lines(["", *sentences])


def _show_chart(results: Sequence[ArmResult]) -> None:
    def column(values: Sequence[float]) -> list[str]:
        return [bar(value, max(values), BAR_WIDTH) for value in values]

    print_table(
        "The same as a picture (each column against its own longest)",
        ["budget", "streaming: worst gap", "waiting: first token", "total"],
        text={0, 1, 2, 3},
        rows=list(
            zip(
                [item.name for item in results],
                column([item.worst_gap for item in results]),
                column([item.waiting_ttft for item in results]),
                column([item.seconds for item in results]),
                strict=True,
            )
        ),
    )


def _sum(chunks: Sequence[int]) -> str:
    """Write equal neighbours as a product: `4 x 256 + 55`."""
    runs = [(size, len(list(same))) for size, same in groupby(chunks)]
    return " + ".join(f"{count} x {size}" if count > 1 else f"{size}" for size, count in runs)


def _first_words(text: str, length: int = 44) -> str:
    words = " ".join(text.split())
    return words if len(words) <= length else f"{words[: length - 1]}…"
