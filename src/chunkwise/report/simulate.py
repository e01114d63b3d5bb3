"""A simulation as tables and sentences for the terminal."""

from collections.abc import Mapping
from typing import Any

from chunkwise.durations import say
from chunkwise.report.terminal import bar, print_lines, print_table

COLUMNS = {"mean": "mean", "p50": "p50", "p90": "p90", "p99": "p99", "max": "max"}
ROWS = {
    "ttft": "first token (TTFT)",
    "gap": "gap between tokens",
    "time_per_output_token": "mean gap of a request",
    "end_to_end": "to the end",
}


def show(content: Mapping[str, Any]) -> None:
    """Print what people would see, what the engine did, and how far to trust it."""
    machine, steps = content["machine"], content["steps"]
    replicas = machine["replicas"]
    fleet = f" x {replicas} replicas" if replicas > 1 else ""
    print_lines(
        [
            f"{machine['model']} on {machine['device']} x {machine['tensor_parallel']}{fleet}: "
            f"{content['served']:,} of {content['requests']:,} requests in "
            f"{content['seconds']:,.1f} s of its time.",
            f"{content['requests_per_second']:,.2f} requests/s, "
            f"{content['output_tokens_per_second']:,.0f} output tokens/s, "
            f"{content['prompt_tokens_per_second']:,.0f} prompt tokens/s.",
            "",
        ]
    )
    print_table(
        "What people see",
        ["", *COLUMNS.values()],
        [
            [name, *(_time(content[key][column]) for column in COLUMNS)]
            for key, name in ROWS.items()
        ],
    )
    print_table(
        "What the engine does",
        ["steps", "count", "mean", "share of time", ""],
        text={0, 4},
        rows=[
            [
                name,
                f"{kind['steps']:,}",
                say(kind["mean_seconds"]),
                f"{kind['time_share']:.1%}",
                bar(kind["time_share"], 1),
            ]
            for name, kind in steps["kinds"].items()
        ],
    )
    settings = machine["settings"]
    print_lines(
        [
            f"Budget {settings['max_num_batched_tokens']:,} tokens a step, "
            f"{steps['mean_tokens']:,.0f} used on average; at most {steps['most_running']:,} "
            f"requests ran and {steps['most_waiting']:,} waited.",
            f"KV cache of {machine['kv_tokens']:,} tokens, at most {steps['most_kv']:.0%} full; "
            f"{content['preemptions']:,} preemptions; {content['cache_hit_share']:.1%} of prompt "
            f"tokens came from the prefix cache.",
        ]
    )
    if content["promise"] is not None:
        print_lines(
            [f"Good requests: {content['goodput_share']:.1%} (promised: {content['promise']})."]
        )
    for item in content["refused"]:
        print_lines([f"{item['requests']:,} refused: {item['reason']}."])
    notes = "; ".join([*machine["notes"], *content["notes"]])
    print_lines(["", f"Step costs: {machine['source']}. {notes}."])


def _time(seconds: float | None) -> str:
    return "" if seconds is None else say(seconds)
