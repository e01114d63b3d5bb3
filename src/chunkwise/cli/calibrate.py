"""`chunkwise calibrate`: what a step costs on an engine of yours."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from chunkwise.lab.calibrate import Steps


def calibrate(
    source: Path | None = typer.Argument(
        None,
        metavar="SOURCE",
        help="A capture (folder or file), or the log of a server that was started with "
        "--enable-logging-iteration-details.",
    ),
    run: str | None = typer.Option(
        None, metavar="MODEL", help="Measure instead: start an engine here and drive it."
    ),
    for_: str = typer.Option("2m", "--for", metavar="TIME", help="How long to measure with --run."),
    itl: list[str] = typer.Option(
        ["25ms", "50ms", "100ms", "200ms"], help="Targets to say the price of."
    ),
    gpu: str | None = typer.Option(
        None, help="For a log: take what context costs from this GPU's tables, such as h100_sxm."
    ),
    save: Path | None = typer.Option(
        None, metavar="FILE", help="Where to keep it.  [default: in $CHUNKWISE_DIR, or the cache]"
    ),
    html: Path | None = typer.Option(None, help="Write one self-contained page here."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Fit what a step takes: from a capture, from a stock server's log, or by measuring.

    Says what each inter-token target buys in prefill tokens, and how far off the fit is.

    Example: `chunkwise calibrate --run ./my-model --for 2m`
    """
    from chunkwise.cost import calibrations
    from chunkwise.cost.words import overview
    from chunkwise.errors import UserMistake
    from chunkwise.lab import calibrate as lab
    from chunkwise.report.terminal import print_json, print_note, progress
    from chunkwise.slo import parse_duration

    targets = [parse_duration(text) for text in itl]
    length = parse_duration(for_)
    if not 1 <= length <= 3600:
        raise UserMistake("--for takes a time from 1s to 1h; two minutes are usually enough.")
    if (source is None) == (run is None):
        raise UserMistake("Name a capture or a log, or measure with --run MODEL: one of the two.")
    if source is not None:
        with progress() as say:
            say(f"Reading {source}", 0.0)
            steps = lab.from_place(source)
    else:
        assert run is not None
        steps = _measure(run, length)
    cost = lab.checked_fit(steps)
    if gpu is not None:
        cost = lab.with_context_of(cost, gpu)
    content = overview(cost, targets, lab.typical_decodes(steps))
    kept = calibrations.save(cost, save)
    print_note(f"Calibration: {kept}")
    if html is not None:
        from chunkwise.report.calibrate_html import write_page

        write_page(html, content, cost, steps.timed)
        print_note(f"Page: {html}")
    if as_json:
        print_json("calibrate", {**content, "seen_steps": steps.seen, "file": str(kept)})
    else:
        from chunkwise.report.calibrate import show

        show(content, cost, steps.timed)


def _measure(model: str, seconds: float) -> "Steps":
    from chunkwise.engine import compat
    from chunkwise.errors import EngineTrouble
    from chunkwise.lab import calibrate as lab
    from chunkwise.lab.child import Child
    from chunkwise.lab.engines import refuse_missing_model
    from chunkwise.report.terminal import print_note, progress

    if compat.installed() is None:
        raise EngineTrouble(f"Measuring needs vLLM: {compat.HOW_TO_INSTALL}.")
    refuse_missing_model(model)
    spec = {"model": model, "rounds": [{"seed": 1, "seconds": seconds}]}
    with Child("chunkwise.lab.calibration:run", spec) as child:
        print_note(f"Engine log: {child.log}")
        with progress() as say:
            return lab.from_run(child.events(say))
