"""`chunkwise demo`: chunked prefill, seen on a real engine."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from chunkwise.lab.child import Child
    from chunkwise.lab.demo import ArmResult


class Mode(StrEnum):
    """Which demo to run."""

    simple = "simple"
    streams = "async"


def demo(
    mode: Mode = typer.Option(
        Mode.streams,
        help="`simple`: four prompts, one after another. `async`: long prompts arrive while "
        "small requests are streaming.",
    ),
    model: str | None = typer.Option(
        None, help="A model's directory or Hugging Face name.  [default: SmolLM2-135M-Instruct]"
    ),
    budget: int = typer.Option(
        256, min=1, max=2**20, help="Tokens a step may carry (`--mode simple`)."
    ),
    sweep: str | None = typer.Option(
        None, metavar="BUDGETS", help="Budgets to compare instead, such as `32,128,512,off`."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Show what chunked prefill does to those who stream and those who wait.

    Runs a real vLLM engine on this machine; every figure is measured in this run.

    Example: `chunkwise demo --sweep 128,512,off`
    """
    from chunkwise.engine import compat
    from chunkwise.errors import EngineTrouble
    from chunkwise.lab.child import Child
    from chunkwise.lab.engines import refuse_missing_model

    budgets = None if sweep is None else _budgets(sweep)
    if compat.installed() is None:
        raise EngineTrouble(f"The demo needs vLLM: {compat.HOW_TO_INSTALL}.")
    if model is not None:
        refuse_missing_model(model)
    spec: dict[str, Any] = {"model": model}
    if mode is Mode.simple:
        with Child("simple", {**spec, "budget": budget}) as child:
            _simple(child, as_json)
    else:
        with Child("streams", {**spec, "sweep": budgets}) as child:
            _streams(child, as_json, budgets)


def _budgets(text: str) -> list[int | str]:
    from chunkwise.errors import UserMistake

    budgets: list[int | str] = []
    for word in text.split(","):
        word = word.strip()
        if word != "off" and not (word.isascii() and word.isdigit() and 1 <= int(word) <= 2**20):
            raise UserMistake(
                f"`{word[:40]}` is not a budget: give whole numbers from 1 to 1,048,576, or "
                f"`off`, separated by commas, such as --sweep 32,128,512,off."
            )
        if (budget := word if word == "off" else int(word)) not in budgets:
            budgets.append(budget)
    if len(budgets) > 16:
        raise UserMistake("A sweep takes at most 16 budgets: leave some out.")
    return budgets


def _simple(child: "Child", as_json: bool) -> None:
    from chunkwise.durations import say as duration
    from chunkwise.report.terminal import print_json, print_lines, print_note, print_table, progress

    print_note(f"Engine log: {child.log}")
    engine: dict[str, Any] = {}
    prompts: list[dict[str, Any]] = []
    with progress() as say:
        for event in child.events():
            match event.pop("event"):
                case "loading":
                    say(f"Loading {event['what']}", 0.05)
                case "starting":
                    say("Starting the engine", 0.3)
                case "running":
                    say("Warming up", 0.7)
                case "engine":
                    engine = event
                case "prompt":
                    prompts.append(event)
                    say(f"Prompt {len(prompts)} of 4", 0.75 + 0.25 * len(prompts) / 4)
    if as_json:
        print_json("demo", {"mode": "simple", **engine, "prompts": prompts, "log": str(child.log)})
        return
    budget = engine["resolved"]["budget"]
    print_table(
        f"Four prompts, budget {budget:,} tokens a step",
        ["prompt tokens", "prefill steps", "chunks", "time", "answer"],
        [
            [
                f"{item['prompt_tokens']:,}",
                f"{len(item['chunks'])}",
                " + ".join(map(str, item["chunks"])),
                duration(item["seconds"]),
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


def _streams(child: "Child", as_json: bool, budgets: list[int | str] | None) -> None:
    from dataclasses import asdict

    from chunkwise.lab.demo import arm_result, conclusions, sweep_conclusions
    from chunkwise.report.terminal import print_json, print_note, progress

    print_note(f"Engine log: {child.log}")
    count = 4 if budgets is None else len(budgets)
    scenario: dict[str, Any] = {}
    results: list[ArmResult] = []
    with progress() as say:
        for event in child.events():
            match event.pop("event"):
                case "loading":
                    say(f"Loading {event['what']}", 0.02)
                case "scenario":
                    scenario = event
                case "starting":
                    say(f"{event['arm']}: starting the engine", _share(results, count, 0))
                case "running":
                    say(f"{event['arm']}: warming up", _share(results, count, 0.5))
                case "half":
                    say(f"{event['arm']}: measuring", _share(results, count, 0.75))
                case "arm":
                    results.append(arm_result(event))
    sentences = conclusions(results) if budgets is None else sweep_conclusions(results)
    if as_json:
        content = {
            "mode": "async" if budgets is None else "sweep",
            "scenario": scenario,
            "arms": [asdict(result) for result in results],
            "conclusions": sentences,
            "log": str(child.log),
        }
        print_json("demo", content)
    else:
        _show_streams(scenario, results, sentences, chart=budgets is not None)


def _share(results: "Sequence[ArmResult]", count: int, part: float) -> float:
    return 0.1 + 0.9 * (len(results) + part) / count


def _show_streams(
    scenario: dict[str, Any], results: "Sequence[ArmResult]", sentences: list[str], chart: bool
) -> None:
    from chunkwise.durations import say
    from chunkwise.report.terminal import bar, print_lines, print_table

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
            "arm",
            "worst gap of those streaming",
            "first token of those waiting",
            "chunks per long prompt",
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
        ["arm", "small, end to end", "long, first token", "long, end to end", "tokens/s"],
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
        gap, total = (max(getattr(i, name) for i in results) for name in ("worst_gap", "seconds"))
        waiting = max(item.waiting_ttft for item in results)
        print_table(
            "The same as a picture (each column against its own longest)",
            ["budget", "worst gap", "waiting", "total"],
            [
                [
                    item.name,
                    bar(item.worst_gap, gap, 16).ljust(16),
                    bar(item.waiting_ttft, waiting, 16).ljust(16),
                    bar(item.seconds, total, 16).ljust(16),
                ]
                for item in results
            ],
        )
    print_lines(["", *sentences])


def _first_words(text: str, length: int = 44) -> str:
    words = " ".join(text.split())
    return words if len(words) <= length else f"{words[: length - 1]}…"
