"""What the demos measured, and the sentences that follow from it.

Everything here is arithmetic over what the engine reported, so that no sentence
is printed that the figures of this very run do not support.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from chunkwise.durations import say
from chunkwise.lab.demo_streams import EARLY, LATE, LONG
from chunkwise.measured import Measured

# One run an arm: smaller differences mean nothing even on a quiet machine.
LEAST_NOISE = 0.10


@dataclass(frozen=True)
class ArmResult:
    """The figures of one arm of the streaming demo, in seconds."""

    name: str
    chunked: bool
    budget: int
    threshold: int
    worst_gap: float
    """The longest wait between two tokens among those who were streaming."""
    waiting_ttft: float
    """The mean first-token time of the small requests behind the long prompts."""
    small_mean: float
    long_ttft: float
    long_mean: float
    chunks_per_long: float
    tokens_per_second: float
    seconds: float
    idle_gap: float
    """The median gap before the long prompts came: the same work in every arm, so its
    differences between arms are the machine's own."""


def arm_result(event: Mapping[str, Any]) -> ArmResult:
    """Condense what the engine reported for an arm."""
    requests = event["requests"]
    run = Measured.of(
        arrival=[request["arrival"] for request in requests],
        tokens=[request["tokens"] for request in requests],
        prompt_tokens=[request["prompt_tokens"] for request in requests],
        classes=[request["kind"] for request in requests],
    )
    kinds = run.by_class()
    early, long, late = kinds[EARLY], kinds[LONG], kinds[LATE]
    undisturbed = early.gap_ends <= long.arrival.min()
    return ArmResult(
        name=event["name"],
        chunked=event["resolved"]["chunked"],
        budget=event["resolved"]["budget"],
        threshold=event["resolved"]["threshold"],
        worst_gap=float(early.worst_gap.max()),
        waiting_ttft=float(late.ttft.mean()),
        small_mean=fmean([*early.end_to_end, *late.end_to_end]),
        long_ttft=float(long.ttft.mean()),
        long_mean=float(long.end_to_end.mean()),
        chunks_per_long=fmean(len(one["chunks"]) for one in requests if one["kind"] == LONG),
        tokens_per_second=int(run.prompt_tokens.sum() + run.token_counts.sum()) / run.seconds,
        seconds=run.seconds,
        idle_gap=median(early.gaps[undisturbed].tolist()),
    )


def noise(arms: Sequence[ArmResult]) -> float:
    """Return the relative difference under which two arms of this run are alike."""
    gaps = [arm.idle_gap for arm in arms]
    return max(LEAST_NOISE, max(gaps) / min(gaps) - 1)


def conclusions(arms: Sequence[ArmResult]) -> list[str]:
    """Say what the four arms showed, each sentence computed from their figures."""
    by_name = {arm.name: arm for arm in arms}
    off, stock = by_name["off"], by_name["default"]
    small, capped = arms[2], arms[3]
    blur = noise(arms)
    smoothest = min(arms, key=lambda arm: arm.worst_gap)
    lines = [
        f"Those streaming: the worst gap was {say(off.worst_gap)} with chunking off and "
        f"{say(stock.worst_gap)} with vLLM's default budget of {stock.budget:,} "
        f"({_change(off.worst_gap, stock.worst_gap)}); the shortest, {say(smoothest.worst_gap)}, "
        f"came with {smoothest.name!r}.",
        _waiting(f"A smaller budget alone ({small.budget:,})", stock, small, blur),
        _waiting(
            f"The same with a cap of {capped.threshold:,} tokens a prompt", stock, capped, blur
        ),
        f"What the cap cost, against the default: tokens per second "
        f"{_change(stock.tokens_per_second, capped.tokens_per_second)}, first token of the long "
        f"prompts {_change(stock.long_ttft, capped.long_ttft)}.",
    ]
    best_gap = min(arm.worst_gap for arm in (small, capped))
    best_ttft = min(arm.waiting_ttft for arm in (small, capped))
    if best_gap > stock.worst_gap / (1 + blur) and best_ttft > stock.waiting_ttft / (1 + blur):
        lines.append("No benefit here: no arm beat vLLM's default by more than the noise.")
    return [*lines, _caution(blur)]


def sweep_conclusions(arms: Sequence[ArmResult]) -> list[str]:
    """Say which budget served whom best in a sweep."""
    smoothest = min(arms, key=lambda arm: arm.worst_gap)
    soonest = min(arms, key=lambda arm: arm.waiting_ttft)
    fastest = min(arms, key=lambda arm: arm.seconds)
    lines = [
        f"Shortest worst gap: {smoothest.name} ({say(smoothest.worst_gap)}). Soonest first token "
        f"for those waiting: {soonest.name} ({say(soonest.waiting_ttft)}). Shortest total: "
        f"{fastest.name} ({say(fastest.seconds)})."
    ]
    if len(arms) > 1 and smoothest is not fastest:
        lines.append(
            f"Smoothness has a price: {smoothest.name} took "
            f"{_change(fastest.seconds, smoothest.seconds)} in total time against {fastest.name}."
        )
    return [*lines, _caution(noise(arms))]


def _caution(blur: float) -> str:
    return (
        f"One run each: read differences under {blur:.0%} as noise. (A decode step before the long "
        f"prompts, the same work every time, tells how much the machine itself varied.)"
    )


def _waiting(subject: str, stock: ArmResult, arm: ArmResult, blur: float) -> str:
    helped = arm.waiting_ttft < stock.waiting_ttft / (1 + blur)
    verdict = "helped" if helped else "did not help"
    return (
        f"{subject} {verdict} those waiting: first token after "
        f"{say(arm.waiting_ttft)} against {say(stock.waiting_ttft)} "
        f"({_change(stock.waiting_ttft, arm.waiting_ttft)})."
    )


def _change(before: float, after: float) -> str:
    return f"{after / before - 1:+.0%}"
