"""What a step costs, for the terminal: the fit in words, what targets buy, how far off it is."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from chunkwise.cost.fitted import FittedCost, TimedStep
from chunkwise.cost.words import sentences
from chunkwise.durations import say
from chunkwise.report.terminal import bar, print_lines, print_table

GROUPS = 10
BAR = 20


def show(content: dict[str, Any], cost: FittedCost, steps: Sequence[TimedStep]) -> None:
    """Write everything. Usage: `show(overview(cost, targets, beside), cost, steps)`."""
    vllm = f", vLLM {content['vllm']}" if content["vllm"] else ""
    print_lines([f"{content['model']} on {content['device']}{vllm}", "", *sentences(content), ""])
    _show_buys(content)
    _show_errors(cost, steps)


def buys_sentences(content: Mapping[str, Any]) -> list[str]:
    """Say what each target buys: "50ms buys 1,310 tokens at context 0, 790 at 32k"."""
    said = []
    for item in content["buys"]:
        first, *rest = item["chunks"]
        parts = [f"{_tokens(first)} tokens at {_depth(first['context'])}"]
        parts += [f"{_tokens(chunk)} at {_depth(chunk['context'])}" for chunk in rest]
        said.append(f"{say(item['itl'])} buys {', '.join(parts)}.")
    return said


def _show_buys(content: Mapping[str, Any]) -> None:
    beside = content["beside"]
    chunks = content["buys"][0]["chunks"] if content["buys"] else []
    print_table(
        f"Prefill tokens that an ITL target buys in a step beside {beside['decodes']} decodes",
        ["ITL target", *(_depth(chunk["context"]) for chunk in chunks)],
        [
            [say(item["itl"]), *(_tokens(chunk) for chunk in item["chunks"])]
            for item in content["buys"]
        ],
    )
    print_lines(buys_sentences(content))
    if any(not chunk["seen"] for item in content["buys"] for chunk in item["chunks"]):
        print_lines(["~ larger than any step that was measured: the price is drawn out."])


def _show_errors(cost: FittedCost, steps: Sequence[TimedStep]) -> None:
    measured = np.array([step.seconds for step in steps])
    predicted = np.array([cost.seconds(step.shape) for step in steps])
    order = np.argsort(measured)
    rows = []
    for group in np.array_split(order, min(GROUPS, len(order))):
        took, priced = float(np.median(measured[group])), float(np.median(predicted[group]))
        off = float(np.median(np.abs(predicted[group] / measured[group] - 1)))
        largest = float(measured[order[-1]])
        rows.append(
            [
                f"{took * 1e3:,.1f} ms",
                f"{priced * 1e3:,.1f} ms",
                f"{off:.1%}",
                bar(took, largest, BAR) or "▏",
                bar(priced, largest, BAR) or "▏",
            ]
        )
    print_table(
        "Measured against predicted, from the quickest tenth of the steps to the slowest",
        ["measured", "predicted", "off", "measured", "predicted"],
        rows,
        text={3, 4},
    )


def _tokens(chunk: Mapping[str, Any]) -> str:
    if not chunk["tokens"]:
        return "no"
    return f"{'' if chunk['seen'] else '~'}{chunk['tokens']:,}"


def _depth(context: int) -> str:
    return f"context {context // 1024}k" if context >= 1024 else f"context {context}"
