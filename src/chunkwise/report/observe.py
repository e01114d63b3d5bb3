"""What a capture says, as tables for the terminal and as plain facts."""

import time
from dataclasses import asdict
from typing import Any

from chunkwise.durations import say
from chunkwise.readers.gaps import BETWEEN, DECODE, HELD, PREEMPTED, PREFILL
from chunkwise.readers.picture import QUANTILES, Picture
from chunkwise.report.terminal import bar, print_lines, print_table

ADVICE = {
    PREFILL: "smaller chunks (a lower max_num_batched_tokens) shorten these steps",
    DECODE: "fewer requests at once (a lower max_num_seqs), or a faster device",
    BETWEEN: "time outside every step: the engine's own work, or a busy host",
    HELD: "the budget went to prefill first: raise it, or cap long prompts",
    PREEMPTED: "the KV cache was full: fewer requests at once, or more memory",
}


def facts(picture: Picture) -> dict[str, Any]:
    """Return everything but the single steps, for `--json`."""
    found = asdict(picture)
    del found["step_ends"], found["step_seconds"], found["step_kinds"]
    return found


def headline(picture: Picture) -> str:
    """Say in a line what was watched."""
    header = picture.headers[0]
    engines = f", {len(picture.headers)} engines" if len(picture.headers) > 1 else ""
    start = time.strftime("%Y-%m-%d %H:%M", time.gmtime(header.started))
    return (
        f"{header.model} on vLLM {header.vllm} ({header.device}){engines}, from {start} UTC for "
        f"{say(picture.seconds)}: {picture.requests:,} requests ended in "
        f"{len(picture.step_ends):,} steps; budget {header.budget:,} tokens."
    )


def traffic_lines(picture: Picture) -> list[str]:
    """Say what the requests were like."""
    if not picture.requests:
        return ["No request ended while this was written."]
    share = picture.cached_tokens / max(1, picture.prompt_tokens)
    ends = ", ".join(f"{count:,} {reason}" for reason, count in picture.reasons.items())
    return [
        f"{picture.chunked / picture.requests:.1%} of the prompts took more than one step; "
        f"{share:.1%} of the prompt tokens were in the prefix cache. Ends: {ends}.",
    ]


def engine_line(picture: Picture) -> str:
    """Say how full the engine was."""
    return (
        f"A step ran {picture.busy:.0%} of the time; {picture.mixed_share:.0%} of the steps with "
        f"prefill carried decodes too; the KV cache was at most {picture.kv_peak:.0%} full, "
        f"{picture.preemptions:,} preemptions, at most {picture.most_waiting:,} waiting."
    )


def gap_lines(picture: Picture) -> list[str]:
    """Say how many gaps were long, and over what."""
    if not picture.gaps:
        return ["No request got a second token: there are no gaps."]
    over = sum(cause.gaps for cause in picture.causes.values())
    why = "the target" if picture.limit_given else "the slowest 1%; give --itl for a target"
    return [
        f"{over:,} of {picture.gaps:,} gaps ({over / picture.gaps:.2%}) are over "
        f"{say_fine(picture.limit)} ({why})."
    ]


def first_token_line(picture: Picture) -> str | None:
    """Say how many first tokens were late, and whether the queue was why."""
    if picture.late is None:
        return None
    return (
        f"{picture.late:,} first tokens were over the target; {picture.late_in_queue:,} of them "
        f"spent most of that time in the queue."
    )


def length_rows(picture: Picture) -> list[list[str]]:
    """Rows of what a request had: tokens, chunks and waiting."""
    rows = [
        [
            f"{name}{'' if name == 'chunks' else ', tokens'}",
            *(f"{found[q]:,.0f}" for q in QUANTILES),
        ]
        for name, found in picture.lengths.items()
        if found
    ]
    names = {"whole": "first token", "queue": "… of it in the queue", "prefill": "… in prefill"}
    rows += [
        [names[name], *(say_fine(found[q]) for q in QUANTILES)]
        for name, found in picture.first_token.items()
        if found
    ]
    if picture.gap_quantiles:
        rows.append(["gap", *(say_fine(picture.gap_quantiles[q]) for q in QUANTILES)])
    return rows


def step_rows(picture: Picture) -> list[list[str]]:
    """Rows of the kinds of steps."""
    total = sum(kind.seconds for kind in picture.kinds.values()) or 1.0
    return [
        [
            {"decode": "decodes only", "mixed": "prefill and decodes", "prefill": "prefill only"}[
                n
            ],
            f"{kind.steps:,}",
            f"{kind.seconds / total:.0%}",
            *(say_fine(kind.quantiles[q]) for q in QUANTILES),
            f"{kind.prefill_tokens:,.0f}",
            f"{kind.decodes:,.1f}",
        ]
        for n, kind in picture.kinds.items()
    ]


def cause_rows(picture: Picture) -> list[list[str]]:
    """Rows of what long gaps came from, the costliest first."""
    total = sum(cause.seconds_over for cause in picture.causes.values()) or 1.0
    ordered = sorted(picture.causes.items(), key=lambda item: -item[1].seconds_over)
    return [
        [
            name,
            f"{cause.gaps:,}",
            say_fine(cause.seconds_over),
            f"{cause.seconds_over / total:.0%}",
            say_fine(cause.worst),
            ADVICE[name],
        ]
        for name, cause in ordered
    ]


STEP_COLUMNS = ["steps", "number", "of step time", *QUANTILES, "prefill tokens", "decodes"]
CAUSE_COLUMNS = ["cause", "gaps", "over by", "share", "worst", "what helps"]


def show(picture: Picture, folder: str) -> None:
    """Print the picture."""
    print_lines([headline(picture), ""])
    print_table("Requests", ["", *QUANTILES], length_rows(picture))
    print_lines([*traffic_lines(picture), ""])
    print_table("Steps", STEP_COLUMNS, step_rows(picture))
    print_lines([engine_line(picture), ""])
    if picture.causes:
        rows = [
            [*row[:4], bar(float(row[3].rstrip("%")), 100, 12), *row[4:]]
            for row in cause_rows(picture)
        ]
        columns = [*CAUSE_COLUMNS[:4], "", *CAUSE_COLUMNS[4:]]
        print_table("Where long gaps came from", columns, rows, text={0, 4, 6})
    print_lines(gap_lines(picture))
    if line := first_token_line(picture):
        print_lines([line])
    if picture.dropped:
        print_lines([f"{picture.dropped:,} records are missing: the server was too busy."])
    for header in picture.headers[:1]:
        if header.blind:
            print_lines([f"This vLLM did not show: {', '.join(header.blind)}."])
    print_lines(["", f"The traffic in full: `chunkwise analyze {folder}`."])


def say_fine(seconds: float) -> str:
    """Write a duration that may be far below a millisecond."""
    if seconds < 0.00095:
        return f"{seconds * 1e6:.0f}µs"
    return f"{seconds * 1e3:.1f}ms" if seconds < 0.0095 else say(seconds)
