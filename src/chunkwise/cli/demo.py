"""`chunkwise demo`: chunked prefill, seen on a real engine."""

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from chunkwise.lab.child import Child


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
    budget: int | None = typer.Option(
        None, min=1, max=2**20, help="Tokens a step may carry in `--mode simple`.  [default: 256]"
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
    from chunkwise.errors import EngineTrouble, UserMistake
    from chunkwise.lab.child import Child
    from chunkwise.lab.engines import refuse_missing_model

    budgets = None if sweep is None else _budgets(sweep)
    if mode is Mode.simple and budgets is not None:
        raise UserMistake("A sweep runs the async demo: leave out --mode simple.")
    if mode is Mode.streams and budget is not None:
        raise UserMistake(f"--budget is for --mode simple: use --sweep {budget} here.")
    if compat.installed() is None:
        raise EngineTrouble(f"The demo needs vLLM: {compat.HOW_TO_INSTALL}.")
    if model is not None:
        refuse_missing_model(model)
    spec: dict[str, Any] = {"model": model}
    if mode is Mode.simple:
        with Child("chunkwise.lab.demo_simple:run", {**spec, "budget": budget or 256}) as child:
            _simple(child, as_json)
    else:
        with Child("chunkwise.lab.demo_streams:run", {**spec, "sweep": budgets}) as child:
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
    from chunkwise.report.demo import show_simple
    from chunkwise.report.terminal import print_json, print_note, progress

    print_note(f"Engine log: {child.log}")
    with progress() as say:
        engine, *prompts = list(child.events(say))
    if as_json:
        print_json("demo", {"mode": "simple", **engine, "prompts": prompts, "log": str(child.log)})
    else:
        show_simple(engine, prompts)


def _streams(child: "Child", as_json: bool, budgets: list[int | str] | None) -> None:
    from dataclasses import asdict

    from chunkwise.lab.demo import arm_result, conclusions, sweep_conclusions
    from chunkwise.report.demo import show_streams
    from chunkwise.report.terminal import print_json, print_note, progress

    print_note(f"Engine log: {child.log}")
    with progress() as say:
        scenario, *arms = list(child.events(say))
    results = [arm_result(arm) for arm in arms]
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
        show_streams(scenario, results, sentences, chart=budgets is not None)
