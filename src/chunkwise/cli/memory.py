"""`chunkwise memory`: where a model's memory goes, and what chunking can save of it."""

from typing import Literal

import typer


def memory(
    model: str = typer.Option(
        ..., help="A model's directory, its config.json, or a name in the Hugging Face cache."
    ),
    dtype: str = typer.Option("auto", help="As vLLM's: `auto` runs float32 models in 16 bits."),
    memory: str | None = typer.Option(
        None, metavar="SIZE", help="A device's memory, such as 80GiB: shows the KV pool left."
    ),
    fraction: float = typer.Option(
        0.92, min=0.01, max=1.0, help="Share of it for vLLM (`gpu_memory_utilization`)."
    ),
    device: Literal["gpu", "cpu"] = typer.Option("gpu", help="The kind of vLLM that will run it."),
    tensor_parallel: int = typer.Option(1, min=1, max=1024, help="Devices that share the model."),
    budget: int | None = typer.Option(
        None, min=1, max=2**21, help="A budget of yours, to check with --scoring-limit."
    ),
    scoring_limit: str | None = typer.Option(
        None, metavar="SIZE", help="Memory that scoring prompts may take, such as 4GiB."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Show what the KV cache, a step and prompt scoring take, from the model's config alone.

    Example: `chunkwise memory --model ./my-model --memory 80GiB`
    """
    from chunkwise.cost.memory import largest_scoring_budget, refuse_budget
    from chunkwise.cost.overview import overview
    from chunkwise.cost.shape import in_dtype, read_shape
    from chunkwise.errors import UserMistake
    from chunkwise.report.memory import show_memory
    from chunkwise.report.terminal import print_json
    from chunkwise.sizes import parse_bytes, say_bytes

    shape = in_dtype(read_shape(model), dtype)
    limit = None if scoring_limit is None else parse_bytes(scoring_limit)
    if budget is not None:
        if limit is None:
            raise UserMistake("--budget is checked against a limit: add --scoring-limit 4GiB.")
        refuse_budget(shape, budget, limit, device=device)
    total = None if memory is None else parse_bytes(memory)
    content = overview(model, shape, total, fraction, tensor_parallel, device)
    if limit is not None:
        best = largest_scoring_budget(shape, limit, device=device)
        content["largest_scoring_budget"] = best
        content["notes"].append(
            f"Scoring prompts within {say_bytes(limit)}: max_num_batched_tokens up to {best:,}."
        )
    if as_json:
        print_json("memory", content)
    else:
        show_memory(content)
