"""`chunkwise observe`: what a watched server went through."""

from pathlib import Path

import typer


def observe(
    folder: Path = typer.Argument(..., metavar="DIR", help="The server's CHUNKWISE_DIR."),
    itl: str | None = typer.Option(
        None, help="Look into gaps over this, such as `50ms`.  [default: the server's target]"
    ),
    ttft: str | None = typer.Option(
        None, help="Count first tokens over this, such as `1s`.  [default: the server's target]"
    ),
    every: bool = typer.Option(
        False, "--all", help="All runs of the server, not only the last one."
    ),
    html: Path | None = typer.Option(None, help="Write one self-contained page here."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Show what a live vLLM did: its traffic, its steps, and where long gaps came from.

    Start the server with `CHUNKWISE=observe CHUNKWISE_DIR=./seen vllm serve MODEL
    --scheduler-cls chunkwise.PacedScheduler` and let it run for an hour.

    Example: `chunkwise observe ./seen --itl 50ms --html seen.html`
    """
    from chunkwise.errors import UserMistake
    from chunkwise.readers.capture import captures, runs
    from chunkwise.readers.picture import Picture
    from chunkwise.report.observe import facts, show
    from chunkwise.report.terminal import print_json, print_lines, print_note, progress
    from chunkwise.slo import parse_duration

    limit = None if itl is None else parse_duration(itl)
    first = None if ttft is None else parse_duration(ttft)
    if not folder.exists():
        raise UserMistake(f"There is no folder at {folder}.")
    found = runs(captures(folder))
    chosen = found if every else found[-1:]
    pictures = []
    with progress() as say:
        for index, run in enumerate(chosen):
            say(f"Reading run {index + 1} of {len(chosen)}", index / len(chosen))
            pictures.append(Picture.of(run, limit, first))
    if html is not None:
        from chunkwise.report.observe_html import write_page

        write_page(html, pictures)
        print_note(f"Page: {html}")
    if as_json:
        print_json("observe", {"runs": [facts(picture) for picture in pictures]})
        return
    for number, picture in enumerate(pictures):
        print_lines([""] * (number > 0))
        show(picture, str(folder))
    if len(found) > len(chosen):
        print_lines([f"{len(found) - 1} earlier runs are here too: --all shows them."])
