"""`chunkwise simulate`: what would happen, before anything is bought or changed."""

from pathlib import Path

import typer


def simulate(
    source: Path = typer.Argument(
        ...,
        metavar="SOURCE",
        help="A trace with lengths (arrival, prompt, output tokens), or a capture.",
    ),
    model: str = typer.Option(..., help="A model's directory, or a name such as Qwen/Qwen3-8B."),
    gpu: str | None = typer.Option(None, help="The GPU, such as h100_sxm, a100_sxm or l40s."),
    tp: int = typer.Option(1, min=1, max=64, help="GPUs that one engine spreads the model over."),
    calibration: Path | None = typer.Option(
        None, help="Step costs measured by `chunkwise calibrate`, instead of a GPU's tables."
    ),
    kv_cache: str | None = typer.Option(
        None, metavar="SIZE", help="KV cache of a device, such as 20GiB.  [default: what remains]"
    ),
    budget: int | None = typer.Option(None, min=1, help="max_num_batched_tokens."),
    threshold: int | None = typer.Option(None, min=0, help="long_prefill_token_threshold."),
    max_num_seqs: int | None = typer.Option(None, min=1, help="Requests that run at a time."),
    rate: float | None = typer.Option(None, help="Requests a second, in the trace's own pattern."),
    scale: float | None = typer.Option(None, help="Times the trace's own rate."),
    users: int | None = typer.Option(
        None, min=1, help="A closed loop: each user sends the next request after an answer."
    ),
    limit: int | None = typer.Option(None, min=1, help="Only the first requests."),
    replicas: int = typer.Option(1, min=1, max=10_000, help="Engines behind a router."),
    router: str = typer.Option("round-robin", help="round-robin, least-tokens or prefix."),
    scheduler_cls: str | None = typer.Option(
        None, help="A scheduler class by its dotted path, such as chunkwise.PacedScheduler."
    ),
    ttft: str | None = typer.Option(None, help="Promised time to the first token, such as 1s."),
    itl: str | None = typer.Option(None, help="Promised time between tokens, such as 50ms."),
    seed: int = typer.Option(0, help="The same seed gives the same result."),
    html: Path | None = typer.Option(None, help="Write one self-contained page here."),
    trace: Path | None = typer.Option(None, help="Write a trace for ui.perfetto.dev here."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """Run your traffic through vLLM's own scheduler on a virtual clock.

    The installed vLLM decides every step as it would live; measured kernel times (or your
    calibration) say how long the step takes. Needs no GPU.

    Example: `chunkwise simulate trace.csv --model Qwen/Qwen3-8B --gpu h100_sxm --budget 2048`
    """
    import tempfile

    from chunkwise.errors import UserMistake
    from chunkwise.lab.child import Child
    from chunkwise.report.simulate_facts import facts
    from chunkwise.report.terminal import print_json, print_note, progress
    from chunkwise.settings import Settings
    from chunkwise.sim import kept
    from chunkwise.sim.router import POLICIES
    from chunkwise.sizes import parse_bytes
    from chunkwise.slo import Slo, parse_duration

    if (gpu is None) == (calibration is None):
        raise UserMistake("Give the GPU (--gpu h100_sxm) or a calibration (--calibration FILE).")
    if sum(item is not None for item in (rate, scale, users)) > 1:
        raise UserMistake("Give one of --rate, --scale and --users.")
    if any(item is not None and item <= 0 for item in (rate, scale)):
        raise UserMistake("A rate or a scale must be above 0.")
    if router not in POLICIES:
        raise UserMistake(f"`{router[:40]}` is no router: {', '.join(POLICIES)}.")
    promised = {"ttft": ttft, "itl": itl}
    targets = {name: parse_duration(text) for name, text in promised.items() if text is not None}
    asked = {
        "max_num_batched_tokens": budget,
        "long_prefill_token_threshold": threshold,
        "max_num_seqs": max_num_seqs,
        "tensor_parallel_size": tp,
        "kv_cache_memory_bytes": None if kv_cache is None else parse_bytes(kv_cache),
    }
    settings = Settings.parse({k: v for k, v in asked.items() if v is not None})
    machine = {"model": model, "tensor_parallel": tp, "replicas": replicas}
    with tempfile.TemporaryDirectory() as folder:
        columns = Path(folder) / "simulation.npz"
        spec = {
            "source": str(source),
            "model": model,
            "gpu": gpu,
            "calibration": None if calibration is None else str(calibration),
            "settings": settings.to_llm(),
            "rate": rate,
            "scale": scale,
            "users": users,
            "limit": limit,
            "replicas": replicas,
            "router": router,
            "scheduler_cls": scheduler_cls,
            "seed": seed,
            "save": str(columns),
        }
        with progress() as say, Child("chunkwise.sim.job:run", spec, keep_log=False) as child:
            for event in child.events(say):
                machine |= event
        simulation = kept.load(columns)
    content = facts(simulation, machine, Slo(**targets) if targets else None)
    if html is not None:
        from chunkwise.report.simulate_html import write_page

        write_page(html, simulation, content)
        print_note(f"Page: {html}")
    if trace is not None:
        from chunkwise.report.trace_events import write_trace

        write_trace(trace, simulation)
        print_note(f"Trace: {trace} (open it at ui.perfetto.dev)")
    if as_json:
        print_json("simulate", content)
    else:
        from chunkwise.report.simulate import show

        show(content)
