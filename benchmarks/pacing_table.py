"""The tables of pacing_capacity.py. Capacities are requests a second."""

import json
from statistics import geometric_mean

ARMS = ("default", "static", "single", "order", "paced")


def table(cells: list[dict], single: dict, cells_in_all: int) -> str:
    """Return the page's tables of the cells that have been done."""
    lines = [
        f"{len(cells)} of {cells_in_all} cells. Best single static: {_setting(single)} "
        f"(budget/threshold of long prompts).",
        "",
        *_capacities(cells),
        "",
        *_means(cells),
        "",
        *_bursts(cells),
    ]
    if any("mix" in cell for cell in cells):
        lines += ["", *_mix([cell for cell in cells if "mix" in cell])]
    return "\n".join(lines) + "\n"


def _capacities(cells: list[dict]) -> list[str]:
    lines = [
        "| engine | workload | saturation | default | best static | single static "
        "| our order, single static | paced | paced ÷ default | ÷ best static | ÷ saturation |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for cell in cells:
        shown = [_rate(cell, arm) for arm in ARMS]
        shown[1] += f" ({_setting(json.loads(cell['static']))})"
        lines.append(
            f"| {cell['engine']} | {cell['workload']} | {cell['saturation']:.2f}/s | "
            f"{' | '.join(shown)} | {_ratio(cell, 'default')} | {_ratio(cell, 'static')} | "
            f"{cell['capacity']['paced']:.2f} |"
        )
    return lines


def _means(cells: list[dict]) -> list[str]:
    lines = []
    labels = ("default", "each cell's best static", "the single static", "order alone")
    for arm, label in zip(ARMS, labels, strict=False):
        known = [cell["capacity"] for cell in cells if arm in cell["capacity"]]
        pairs = [(one["paced"], one[arm]) for one in known]
        both = [paced / other for paced, other in pairs if paced and other]
        if not pairs:
            continue
        zero = sum(not other for _, other in pairs)
        lost = sum(not paced for paced, _ in pairs)
        mean = f"{geometric_mean(both):.2f}" if both else "—"
        lines.append(
            f"- Paced ÷ {label}: {mean} (geometric mean of {len(both)} cells; left out: "
            f"{zero} where {label} has no capacity, {lost} where paced has none)"
        )
    own = [cell["capacity"]["paced"] for cell in cells]
    if own and all(own):
        lines.append(f"- Paced ÷ saturation: {geometric_mean(own):.2f}")
    return lines


def _bursts(cells: list[dict]) -> list[str]:
    lines = [
        "| engine | workload | load | default | best static | single static | our order | paced "
        "| paced, by prompt quartile | worst wait: default, best static, paced |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|---|",
    ]
    for cell in cells:
        for row in cell["bursty"]:
            shares = " | ".join(_share(row.get(arm)) for arm in ARMS)
            quarters = ", ".join(f"{share:.0%}" for share in row["paced"]["quartiles"])
            waits = ", ".join(
                f"{row[arm]['worst_wait']:.1f} s" for arm in ("default", "static", "paced")
            )
            lines.append(
                f"| {cell['engine']} | {cell['workload']} | {row['load']:.0%} | {shares} | "
                f"{quarters} | {waits} |"
            )
    return lines


def _mix(cells: list[dict]) -> list[str]:
    lines = [
        "Chat at half of its own saturation rate, and 1.1 times the batch that the other half "
        "could do. Batch work: its prompt and output tokens a second, as a share of half the "
        "batch-only saturation throughput.",
        "",
        "| engine | chat kept: default | best static | paced "
        "| batch work: default | best static | paced |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for cell in cells:
        mix = cell["mix"]
        arms = ("default", "static", "paced")
        kept = [f"{mix[arm]['share']:.1%}" for arm in arms]
        work = [f"{mix[arm]['batch_tokens'] / mix['left']:.0%}" for arm in arms]
        lines.append(f"| {cell['engine']} | {' | '.join(kept + work)} |")
    return lines


def _share(found: dict | None) -> str:
    return "—" if found is None else f"{found['share']:.1%}"


def _rate(cell: dict, arm: str) -> str:
    found = cell["capacity"].get(arm)
    if found is None:
        return "—"
    return f"{found * cell['saturation']:.2f}"


def _ratio(cell: dict, arm: str) -> str:
    other = cell["capacity"].get(arm)
    return f"{cell['capacity']['paced'] / other:.2f}" if other else "—"


def _setting(arm: dict) -> str:
    return f"{arm['budget']}/{arm['threshold']}"
