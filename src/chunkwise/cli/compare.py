"""`chunkwise compare`: the same requests to real servers of different settings."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from chunkwise.lab.compare import Question

LEAST_ROUNDS = 5
MOST_ROUNDS = 12
PRECISION = 0.05
TIME_LIMIT = "20m"
REQUESTS = 100
USERS = 16  # of the preset: fits any device, as a rate would not


class Preset(StrEnum):
    """Ready-made comparisons."""

    proof = "proof"


def compare(
    source: str | None = typer.Argument(
        None,
        help="A trace, a file with prompts, a capture, a saved profile, or `mixed`: chat with 12% "
        "prompts of 3,000 to 7,000 tokens.",
    ),
    model: str | None = typer.Option(None, help="A model's directory or Hugging Face name."),
    arm: list[str] = typer.Option(
        [],
        metavar="ARM",
        help="`default`, `off`, `static:2048`, `static:2048/512` (budget/threshold), "
        "`best-static`, `paced` (our plug-in, keeping --itl and --ttft), a settings file, "
        "`NAME=--vllm-args …` or `NAME=http://…`. Repeat it.",
    ),
    baseline: str | None = typer.Option(
        None, metavar="NAME", help="The arm that others are held against.  [default: the first]"
    ),
    server: str | None = typer.Option(
        None, metavar="ARGS", help='vLLM arguments of all arms: `"--tensor-parallel-size 2"`.'
    ),
    rate: float | None = typer.Option(
        None, min=0.001, max=100_000, help="Requests a second, at random moments (Poisson)."
    ),
    users: int | None = typer.Option(
        None, min=1, max=10_000, help="So many at once, each asks again when answered."
    ),
    requests: int = typer.Option(REQUESTS, min=2, max=100_000, help="Requests in a run."),
    column: str | None = typer.Option(
        None, metavar="NAMES", help="Columns that make up the prompt, as in `analyze`."
    ),
    itl: str | None = typer.Option(
        None, metavar="TIME", help="Promised gap between tokens, such as 50ms."
    ),
    ttft: str | None = typer.Option(
        None, metavar="TIME", help="Promised time to the first token, such as 1s."
    ),
    rounds: int = typer.Option(
        MOST_ROUNDS, min=1, max=1000, help="At most so many; fewer once intervals are within ±5%."
    ),
    time_limit: str = typer.Option(
        TIME_LIMIT, metavar="TIME", help="No round begins after this time."
    ),
    out: Path | None = typer.Option(
        None, metavar="FILE", help="Where the runs are kept.  [default: compare-TIME.jsonl]"
    ),
    resume: Path | None = typer.Option(
        None, metavar="FILE", help="Go on with this file of runs after a break."
    ),
    html: Path | None = typer.Option(None, help="Write one self-contained page here."),
    preset: Preset | None = typer.Option(
        None, help="`proof`: default, off and best-static on `mixed`, in about 20 minutes."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Prove what settings change: real servers, the same requests, paired and repeated.

    Every arm is a vLLM server on this machine (or a given one); the baseline runs twice, to
    know the noise; a difference is claimed only beyond it. Each finished run is on disk.

    Example: `chunkwise compare mixed --model ./my-model --arm default --arm off --rate 2`
    """
    import time

    from chunkwise.engine import compat
    from chunkwise.errors import EngineTrouble, UserMistake
    from chunkwise.lab import compare as lab
    from chunkwise.report.terminal import print_note, progress

    if resume is not None:
        if source or model or arm or preset:
            raise UserMistake("--resume takes everything from its file: leave out the rest.")
        file, question = resume, None
    else:
        if preset is not None:
            source, arm = source or "mixed", arm or ["default", "off", "best-static"]
            users = users if rate or users else USERS
        if source is None or model is None or len(arm) < 2:
            raise UserMistake(
                "A comparison needs what to send, a model and two arms or more: chunkwise "
                "compare mixed --model DIR --arm default --arm off --rate 2."
            )
        if rate is not None and users is not None:
            raise UserMistake("Give --rate or --users, not both.")
        question = _question(
            source, model, arm, baseline, server, rate, users, requests, column,
            itl, ttft, rounds, time_limit,
        )  # fmt: skip
        if compat.installed() is None:
            raise EngineTrouble(f"A comparison needs vLLM: {compat.HOW_TO_INSTALL}.")
        file = out or Path(time.strftime("compare-%Y%m%d-%H%M%S.jsonl"))
        if file.exists():
            raise UserMistake(f"{file} exists: name another --out, or go on with --resume {file}.")
    print_note(f"Runs: {file}")
    try:
        with progress() as say:
            reason = lab.resume(file, say) if question is None else lab.begin(question, file, say)
    except KeyboardInterrupt:
        _show(file, html, as_json)
        typer.echo(_how_to_go_on(file, "Interrupted"), err=True)
        raise typer.Exit(130) from None
    except EngineTrouble as trouble:
        _show(file, html, as_json)
        if file.exists():
            raise EngineTrouble(f"{trouble} {_how_to_go_on(file, 'Stopped')}") from None
        raise
    _show(file, html, as_json)
    print_note(f"Ended by the rule: {reason}.")


def _question(
    source: str,
    model: str,
    arm: list[str],
    baseline: str | None,
    server: str | None,
    rate: float | None,
    users: int | None,
    requests: int,
    column: str | None,
    itl: str | None,
    ttft: str | None,
    rounds: int,
    time_limit: str,
) -> "Question":
    import sys
    from math import inf

    from chunkwise.errors import UserMistake
    from chunkwise.lab.arms import arguments, parse, refuse_same_names
    from chunkwise.lab.compare import Question
    from chunkwise.lab.engines import refuse_missing_model
    from chunkwise.slo import Slo, parse_duration

    refuse_missing_model(model)
    arms = tuple(map(parse, arm))
    refuse_same_names(arms)
    if baseline is not None and baseline not in {one.name for one in arms}:
        names = ", ".join(one.name for one in arms)
        raise UserMistake(f"The baseline `{baseline[:40]}` is none of the arms ({names}).")
    slo = None
    if itl or ttft:
        slo = Slo(
            ttft=parse_duration(ttft) if ttft else inf, itl=parse_duration(itl) if itl else inf
        )
    return Question(
        command=("chunkwise", *sys.argv[1:]),
        model=str(Path(model).expanduser()),
        place=source,
        arms=arms,
        baseline=baseline or arms[0].name,
        rule={
            "least_rounds": min(LEAST_ROUNDS, rounds),
            "most_rounds": rounds,
            "precision": PRECISION,
            "seconds": parse_duration(time_limit),
        },
        requests=requests,
        rate=rate,
        users=users,
        columns=None if column is None else tuple(filter(None, column.split(","))),
        slo=slo,
        server_args=() if server is None else tuple(arguments(server, "--server")),
    )


def _how_to_go_on(file: Path, what: str) -> str:
    if not file.exists():
        return f"{what} before the first run."
    return f"{what}: the finished runs are kept; go on with `chunkwise compare --resume {file}`."


def _show(file: Path, html: Path | None, as_json: bool) -> None:
    """Report what the file holds, as far as it goes."""
    if not file.exists():
        return
    from chunkwise.lab import runs
    from chunkwise.lab.statistics import compare as judge
    from chunkwise.report import compare as report
    from chunkwise.report.terminal import print_json, print_note

    asked, done = runs.read(file)
    if not done:
        return
    comparison = judge(asked, done)
    if html is not None:
        from chunkwise.report.compare_html import write

        write(comparison, html)
        print_note(f"Page: {html}")
    if as_json:
        print_json("compare", report.as_json(comparison))
    else:
        report.show(comparison)
