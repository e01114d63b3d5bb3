"""`chunkwise analyze`: what is coming, and a first verdict on chunked prefill."""

from pathlib import Path

import typer


def analyze(
    places: list[str] = typer.Argument(
        ...,
        metavar="PATH…",
        help="Files, folders (each file a dataset), saved profiles, or addresses such as "
        "`s3://…` and `hf://…`.",
    ),
    model: str | None = typer.Option(
        None,
        help="The model whose tokenizer counts text: a directory, or a name in the local "
        "Hugging Face cache.",
    ),
    tokenizer: str | None = typer.Option(
        None, help="Another tokenizer than the model's: a directory or a tokenizer.json."
    ),
    estimate: bool = typer.Option(
        False, "--estimate", help="No tokenizer: count characters ÷ 4, labelled as an estimate."
    ),
    column: str | None = typer.Option(
        None,
        metavar="NAMES",
        help="Columns that make up the prompt, joined in this order, such as "
        "`passage,question`; those that a file lacks are left out. A column of numbers is the "
        "prompt's length.  [default: prompt, text or question]",
    ),
    block_size: int | None = typer.Option(
        None,
        min=1,
        max=65536,
        help="Tokens in a block, for prefix reuse.  [default: 16; a Mooncake trace: 512]",
    ),
    save: Path | None = typer.Option(None, help="Write the profile here, to merge it later."),
    html: Path | None = typer.Option(None, help="Write one self-contained page here."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Show how long, how repetitive and how bursty your traffic is, with a first verdict.

    Reads request logs, public traces (Azure, Mooncake, BurstGPT), ShareGPT, vLLM's benchmark
    files and evaluation datasets. Needs no vLLM and no GPU.

    Example: `chunkwise analyze requests.jsonl --model ./my-model --html report.html`
    """
    from chunkwise.errors import UserMistake
    from chunkwise.report.terminal import print_json, print_note, progress
    from chunkwise.workload import analysis

    if estimate and (model or tokenizer):
        raise UserMistake("Give a tokenizer (--model, --tokenizer) or --estimate, not both.")
    columns = (
        None if column is None else tuple(n for name in column.split(",") if (n := name.strip()))
    )
    if columns == ():
        raise UserMistake("--column needs at least one name, such as --column question.")
    with progress() as say:
        result = analysis.analyze(
            places,
            columns=columns,
            tokenizer=tokenizer or model,
            estimate=estimate,
            block_size=block_size,
            tell=say,
        )
    named = model or "MODEL"
    if save is not None:
        result.profile.save(save)
        print_note(f"Profile: {save}")
    if html is not None:
        from chunkwise.report.analyze_html import write_page

        write_page(html, result, named)
        print_note(f"Page: {html}")
    if as_json:
        from chunkwise.report.analyze_facts import facts

        print_json("analyze", facts(result, named))
    else:
        from chunkwise.report.analyze import show

        show(result, named)
