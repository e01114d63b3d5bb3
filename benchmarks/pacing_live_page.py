"""Turn the runs of `pacing_live.py` into what the page "Tokens on time" shows.

Reads pacing-live.json and pacing-live.jsonl in a folder, adds the figures to the one and
writes pacing-live.md beside it; with the published results, the picture of a stall too.

Usage: python benchmarks/pacing_live_page.py [FOLDER]
"""

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).resolve().parent / "results"
PICTURE = RESULTS.parents[1] / "docs" / "pictures" / "pacing-live-stall.png"
OWN_TIME = 3.0  # a long prompt may take so many times what it takes alone
WORST, THROUGHPUT = 1.3, 0.97  # the bounds: of the target, of the best arm's


def good(run, found: dict):
    """Tell which requests got what was promised."""
    alone = np.interp(run.prompt_tokens, found["lengths"], found["alone"])
    long = np.asarray(run.classes) == "long"
    limit = np.where(long, np.maximum(found["ttft"], OWN_TIME * alone), found["ttft"])
    return (run.ttft <= limit) & (run.gap_quantile(0.99) <= found["itl"])


def main(folder: Path) -> None:
    from chunkwise.lab import runs

    file = folder / "pacing-live.json"
    found = json.loads(file.read_text())
    asked, done = runs.read(folder / "pacing-live.jsonl")
    found |= figures(found, asked, done)
    file.write_text(json.dumps(found, indent=1) + "\n")
    text = "\n".join(shown(found, asked)) + "\n"
    place = PICTURE if folder == RESULTS else folder / PICTURE.name
    if picture(asked, done, place):
        text += f"\n![One stall, before and after](pictures/{place.name})\n"
    (folder / "pacing-live.md").write_text(text)
    print(text)


def metrics_of(found: dict):
    from chunkwise.lab.metrics import Metric

    def part(name: str, q: float | None, run) -> float:
        waits = run.measured.ttft[np.asarray(run.measured.classes) == name]
        return float(waits.mean() if q is None else np.quantile(waits, q))

    def share(run) -> float:
        return float(good(run.measured, found).sum()) / (
            len(run.measured) + sum(run.failed.values())
        )

    def gap(q: float, run) -> float:
        return float(np.quantile(run.measured.gaps, q))

    def throughput(run) -> float:
        return run.measured.output_tokens_per_second

    return [
        Metric("goodput", "goodput share", share, "share", True),
        Metric("small", "TTFT of small prompts, mean", partial(part, "chat", None)),
        Metric("small_p95", "TTFT of small prompts, P95", partial(part, "chat", 0.95)),
        Metric("large", "TTFT of large prompts, mean", partial(part, "long", None)),
        Metric("gap_p99", "P99 gap", partial(gap, 0.99)),
        Metric("worst", "worst gap", partial(gap, 1.0)),
        Metric("throughput", "throughput", throughput, "tokens/s", True),
    ]


def figures(found: dict, asked: dict, done) -> dict:
    """Return each metric of each arm, and paced against the others with intervals."""
    best = asked["baseline"]
    arms = ["default", best, "paced"]
    others = {"default": "default", "static": best}
    twin = asked["twin"]
    values = {
        (metric.key, arm): {run.round: metric.of(run) for run in done if run.arm == arm}
        for metric in metrics_of(found)
        for arm in (*arms, twin)
    }
    rows = [
        {
            "metric": metric.key,
            "values": {arm: middle(metric, values[metric.key, arm]) for arm in arms},
            "paced_against": {
                word: paired(metric, values[metric.key, "paced"], values[metric.key, arm])
                for word, arm in others.items()
            },
            "noise": paired(metric, values[metric.key, twin], values[metric.key, best]),
        }
        for metric in metrics_of(found)
    ]
    worst = {arm: max(values["worst", arm].values()) for arm in arms}
    rounds = min(len(values["worst", arm]) for arm in (*arms, twin))
    return {"rounds": rounds, "rows": rows, "worst_of_all": worst, "seconds": spent(done)}


def spent(done) -> float:
    return sum(run.measured.seconds for run in done)


def middle(metric, values: dict[int, float]) -> float:
    found = np.array(list(values.values()))
    return float(np.exp(np.log(found).mean()) if metric.as_ratio else found.mean())


def paired(metric, ours: dict[int, float], theirs: dict[int, float]) -> list[float]:
    """Return the change and its interval's ends, by the rounds that have both."""
    from chunkwise.lab.statistics import interval

    pairs = np.array([[ours[number], theirs[number]] for number in sorted(ours.keys() & theirs)])
    pairs = np.log(pairs) if metric.as_ratio else pairs
    differences = pairs[:, 0] - pairs[:, 1]
    ends = np.array([differences.mean(), *interval(differences)])
    return [float(end) for end in (np.exp(ends) if metric.as_ratio else ends)]


# --- the page -----------------------------------------------------------------------


def shown(found: dict, asked: dict) -> list[str]:
    from chunkwise.durations import say

    best = found["best"]
    rows = {row["metric"]: row for row in found["rows"]}
    alone = ", ".join(
        f"{length:,} tokens {say(seconds)}"
        for length, seconds in zip(found["lengths"], found["alone"], strict=True)
    )
    lines = [
        f"vLLM {asked['environment']['vllm']} on {asked['environment']['cores']} CPU cores, "
        f"`{asked['model']}`, {asked['load']['source']}, {found['requests']} requests a run, "
        f"{found['rate']:g} a second: {found['rate'] / found['saturation']:.0%} of the "
        f"{found['saturation']:.2f} that a pressed default server manages. "
        f"{found['rounds']} rounds.",
        "",
        f"An idle server's decode step: {say(found['idle_step'])} (the longest of "
        f"{3 * 199:,}: {say(found['idle_worst_gap'])}); the inter-token target is four times "
        f"that, **{say(found['itl'])}**. Long prompts alone: {alone}.",
        "",
        f"A request is good if its P99 gap is within the inter-token target and its first token "
        f"came within {say(found['ttft'])}, or, for prompts of 3,000 tokens and more, within "
        f"three times what the prompt takes alone if that is longer.",
        "",
        "| fixed settings (budget/threshold) | goodput share, screened |",
        "|---|---:|",
        *(
            f"| {bold(row['settings'], row['settings'] == best)} "
            f"| {', '.join(f'{share:.0%}' for share in row['goodput_shares'])} |"
            for row in found["grid"]
        ),
        "",
        f"| | default | best fixed: {best} | paced | paced against {best} (95%) "
        f"| against default (95%) | {best} against itself |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for metric in metrics_of(found):
        row = rows[metric.key]
        values = [value(metric, row["values"][arm], found) for arm in ("default", best, "paced")]
        changes = [
            change(metric, row["paced_against"]["static"]),
            change(metric, row["paced_against"]["default"]),
            change(metric, row["noise"]),
        ]
        lines.append(f"| {metric.label} | {' | '.join([*values, *changes])} |")
    worst = found["worst_of_all"]
    lines += [
        "| worst gap of all rounds | "
        + " | ".join(f"{worst[arm] / found['itl']:.1f}× target" for arm in worst)
        + " | | | |",
        "",
        *verdicts(found, rows),
    ]
    return lines


def verdicts(found: dict, rows: dict) -> list[str]:
    """Say of each aim whether these runs show it."""
    best = found["best"]
    worst = found["worst_of_all"]["paced"] / found["itl"]
    tokens = rows["throughput"]["values"]
    share = tokens["paced"] / max(tokens.values())
    good_change = rows["goodput"]["paced_against"]["static"]
    small = rows["small"]["paced_against"]["static"]
    return [
        f"- Worst gap within {WORST} times the target: {'yes' if worst <= WORST else 'no'} "
        f"({worst:.2f} in the worst round, {rows['worst']['values']['paced'] / found['itl']:.2f} "
        f"in a usual one).",
        f"- Goodput share at least that of {best}: {tell(good_change, 0.0, 1)}.",
        f"- First tokens of small prompts no later than with {best}: {tell(small, 1.0, -1)}.",
        f"- Throughput at least {THROUGHPUT:.0%} of the best arm's: "
        f"{'yes' if share >= THROUGHPUT else 'no'} ({share:.1%}).",
    ]


def tell(change: list[float], bound: float, sign: int) -> str:
    """Say yes or no by the mean, and whether the whole interval says so too."""
    middle_, *ends = (sign * (one - bound) for one in change)
    word = "yes" if middle_ >= 0 else "no"
    sure = all((end >= 0) == (middle_ >= 0) for end in ends)
    return word if sure else f"{word} by the mean, but the interval holds both"


def value(metric, number: float, found: dict) -> str:
    from chunkwise.report.compare_facts import value as written

    text = written(metric, number)
    if metric.key in ("worst", "gap_p99"):
        return f"{text}, {number / found['itl']:.1f}× target"
    return text


def change(metric, found: list[float]) -> str:
    middle_, low, high = found
    if not metric.as_ratio:
        return f"{100 * middle_:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"
    return f"{middle_:.2f}× ({low:.2f}–{high:.2f})"


def bold(text: str, so: bool) -> str:
    return f"**{text}**" if so else text


def picture(asked: dict, done, place: Path) -> bool:
    """Draw the default's worst stall, and the same moment paced."""
    import compare_page

    from chunkwise.lab.statistics import compare

    arms = {arm: asked["arms"][arm] for arm in ("default", "paced")}
    return compare_page.draw(compare({**asked, "arms": arms, "baseline": "default"}, done), place)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)
