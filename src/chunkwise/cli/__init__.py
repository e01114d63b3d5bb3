"""The command line: one small file a command, no logic.

Nothing heavier than typer is imported before a command runs, so that `--help`
answers at once. Exit codes: 0 done, 1 a negative finding, 2 the user's mistake,
3 environment or engine, 130 interrupted.
"""

import sys

import typer

from chunkwise import __version__
from chunkwise.cli import (
    analyze,
    calibrate,
    compare,
    demo,
    env,
    lm_eval,
    memory,
    observe,
    serve,
    simulate,
)
from chunkwise.errors import ChunkwiseError

app = typer.Typer(
    name="chunkwise",
    help="Chunked prefill for your own vLLM traffic: see it, decide it, prove it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("analyze")(analyze.analyze)
app.command("compare")(compare.compare)
app.command("calibrate")(calibrate.calibrate)
app.command("demo")(demo.demo)
app.command("env")(env.env)
app.command("lm-eval", context_settings=lm_eval.SETTINGS)(lm_eval.lm_eval)
app.command("memory")(memory.memory)
app.command("observe")(observe.observe)
app.command("serve", context_settings=serve.SETTINGS)(serve.serve)
app.command("simulate")(simulate.simulate)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"chunkwise {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line; a known error ends as one sentence on stderr."""
    try:
        app()
    except ChunkwiseError as error:
        typer.echo(f"chunkwise: {error}", err=True)
        sys.exit(error.exit_code)
