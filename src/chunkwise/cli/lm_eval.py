"""`chunkwise lm-eval`: lm-evaluation-harness with `--model chunkwise` known to it."""

import sys

import typer

SETTINGS = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": ["-h", "--help"],
}


def lm_eval(context: typer.Context) -> None:
    """Run lm-evaluation-harness with its own arguments; `--model chunkwise` is known to it.

    Example: `chunkwise lm-eval run --model chunkwise --model_args pretrained=my-model --tasks mmlu`
    """
    from chunkwise.lab.lm_eval import register

    register()
    from lm_eval.__main__ import cli_evaluate

    sys.argv = ["lm-eval", *context.args]
    cli_evaluate()
