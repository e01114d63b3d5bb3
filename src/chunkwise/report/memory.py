"""The memory tables: what the budget decides, and what the context decides."""

from collections.abc import Mapping
from typing import Any

from chunkwise.cost.memory import WHY_FUSED
from chunkwise.report.terminal import print_lines, print_table
from chunkwise.sizes import say_bytes


def show_memory(content: Mapping[str, Any]) -> None:
    """Write the two tables and what follows from them."""
    print_lines(
        [
            f"{content['model']} in {content['dtype']}: {say_bytes(content['weight_bytes'])} of "
            f"weights, {say_bytes(content['kv_bytes_per_token'])} of KV cache a token of context.",
            "",
        ]
    )
    _show_budgets(content)
    _show_lengths(content)
    print_lines([WHY_FUSED, *content["notes"]])


def _show_budgets(content: Mapping[str, Any]) -> None:
    columns = ["budget", "activations, workspace", "logits, scoring prompts"]
    with_pool = content["memory_bytes"] is not None
    rows = []
    for item in content["budgets"]:
        row = [
            f"{item['budget']:,}",
            say_bytes(item["step_bytes"]),
            say_bytes(item["scoring_bytes"]),
        ]
        if with_pool:
            row += [say_bytes(item["pool_bytes"]), f"{item['pool_tokens']:,}"]
        rows.append(row)
    if with_pool:
        columns += ["KV pool left", "tokens in it"]
    print_table("What the budget (tokens of a step) decides", columns, rows, text=())


def _show_lengths(content: Mapping[str, Any]) -> None:
    print_table(
        f"What the prompt's length decides (a layer's attention, whole or cut into "
        f"{content['chunk']:,})",
        ["prompt", "its KV cache", "eager, whole", "eager, cut", "fused, whole", "fused, cut"],
        [
            [
                f"{item['tokens']:,}",
                *(
                    say_bytes(item[name])
                    for name in ("kv_bytes", "eager_whole", "eager_cut", "fused_whole", "fused_cut")
                ),
            ]
            for item in content["lengths"]
        ],
        text=(),
    )
