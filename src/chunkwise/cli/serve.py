"""`chunkwise serve`: vLLM's own server, with the plug-in in it."""

from pathlib import Path

import typer

SETTINGS = {"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]}


def serve(
    model: str = typer.Argument(..., help="A model's directory or Hugging Face name."),
    vllm: list[str] | None = typer.Argument(
        None, metavar="-- VLLM_ARGS", help="Anything that `vllm serve` takes."
    ),
    itl: str | None = typer.Option(
        None, metavar="TIME", help="Promised gap between tokens, such as 50ms."
    ),
    ttft: str | None = typer.Option(
        None, metavar="TIME", help="Promised time to the first token, such as 1s."
    ),
    observe: bool = typer.Option(False, "--observe", help="Only watch: change nothing."),
    settings: Path | None = typer.Option(
        None, metavar="FILE", help="A settings file; your vLLM arguments win over it."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print what would be started, and end."),
    as_json: bool = typer.Option(
        False, "--json", help="With --dry-run: one JSON object on stdout."
    ),
) -> None:
    """Serve a model with vLLM's own OpenAI server and the plug-in, in the foreground.

    Port, routes, logs, signals and exit code are vLLM's. Only this machine can reach it
    unless `--host` is among vLLM's arguments.

    Example: `chunkwise serve my-model --itl 50ms --ttft 1s -- --port 8001`
    """
    from chunkwise.engine import compat
    from chunkwise.engine.serve import become, launch
    from chunkwise.errors import EngineTrouble, UserMistake
    from chunkwise.lab.engines import refuse_missing_model
    from chunkwise.report.serve import facts, show
    from chunkwise.report.terminal import print_json

    args = vllm or []
    _refuse_strays(args)
    if as_json and not dry_run:
        raise UserMistake("--json goes with --dry-run: a server's output is vLLM's log.")
    if model.startswith("~"):
        model = str(Path(model).expanduser())
    ready = launch(model, args, itl=itl, ttft=ttft, observe=observe, settings=settings)
    refuse_missing_model(model)
    if not dry_run and compat.installed() is None:
        raise EngineTrouble(f"A server needs vLLM: {compat.HOW_TO_INSTALL}.")
    if as_json:
        print_json("serve", facts(ready))
    else:
        show(ready)
    if not dry_run:
        become(ready)


def _refuse_strays(args: list[str]) -> None:
    """Refuse what stands before `--` and is no option of ours, a mistyped one perhaps."""
    import sys

    from chunkwise.errors import UserMistake

    line = sys.argv[1:]
    behind = line[line.index("--") + 1 :] if "--" in line else []
    if len(args) > len(behind):
        stray = args[0].split("=")[0]  # what follows may be a key
        raise UserMistake(
            f"`{stray[:40]}` is no option of `chunkwise serve` (see --help); vLLM's own go "
            f"behind `--`: chunkwise serve MODEL --itl 50ms -- --port 8001."
        )
