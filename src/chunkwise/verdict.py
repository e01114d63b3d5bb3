"""Uncut, selective or cut: a first verdict on chunked prefill, from lengths alone.

Three rules, in this order: the longest prompt is under 1,000 tokens (uncut);
the 95th percentile is under 2,048 (selective, at 2,048); everything else (cut,
at 0.8 of the 95th percentile). Invariant: a verdict depends on nothing but the
prompt lengths, and none of them turns chunked prefill off: vLLM warns that it
may misbehave, and a budget of at least the longest prompt has the same effect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from chunkwise.settings import Settings

UNCUT_BELOW = 1_000
SELECTIVE_BELOW = 2_048
CUT_SHARE = 0.8

# The smallest budget that vLLM takes by itself, and the largest number of
# sequences: it refuses a budget below the number of sequences.
SMALLEST_DEFAULT_BUDGET = 2_048
LARGEST_DEFAULT_SEQS = 1_024

CANNOT_KNOW = (
    "This rule sees prompt lengths only. It does not know the latency you promised, your GPU or "
    "your load, and these decide how large a budget may be: `chunkwise demo --model MODEL --sweep "
    "512,2048,8192,off` measures budgets on this machine's vLLM."
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with these prompts, why, and the settings that do it."""

    name: Literal["uncut", "selective", "cut"]
    # Prompts above it count as long; None where nothing is.
    threshold: int | None
    # The share of prompts that the settings make take more than one step.
    chunking_rate: float
    reason: str
    settings: Settings


def decide(
    longest: int,
    p95: int,
    median: int,
    share_above: Callable[[int], float],
    estimated: bool = False,
) -> Verdict:
    """Judge prompt lengths. Usage: `decide(7437, 7315, 1469, share_above=lambda tokens: …)`.

    `share_above(n)` is the share of prompts with more than `n` tokens.
    """
    said = "an estimated " if estimated else ""
    if longest < UNCUT_BELOW:
        return Verdict(
            name="uncut",
            threshold=None,
            chunking_rate=0.0,
            reason=f"The longest prompt has {said}{longest:,} tokens, under {UNCUT_BELOW:,}: it "
            f"fits whole into vLLM's smallest default budget ({SMALLEST_DEFAULT_BUDGET:,}).",
            settings=Settings(),
        )
    if p95 < SELECTIVE_BELOW:
        rate = share_above(SELECTIVE_BELOW)
        return Verdict(
            name="selective",
            threshold=SELECTIVE_BELOW,
            chunking_rate=rate,
            reason=f"95% of prompts have at most {said}{p95:,} tokens, under "
            f"{SELECTIVE_BELOW:,}; the longest has {longest:,}. A cap of {SELECTIVE_BELOW:,} "
            f"tokens a step for one prompt touches {rate:.1%} of them and leaves the rest whole.",
            settings=Settings(long_prefill_token_threshold=SELECTIVE_BELOW),
        )
    threshold = int(CUT_SHARE * p95)
    budget = _budget_below_most(median, threshold)
    rate = share_above(budget)
    return Verdict(
        name="cut",
        threshold=threshold,
        chunking_rate=rate,
        reason=f"The 95th percentile is {said}{p95:,} tokens, {SELECTIVE_BELOW:,} or more: long "
        f"prompts are normal here. {share_above(threshold):.1%} are above the threshold of "
        f"{threshold:,} (0.8 of the 95th percentile); a budget of {budget:,} cuts {rate:.1%}.",
        settings=Settings(max_num_batched_tokens=budget),
    )


def _budget_below_most(median: int, threshold: int) -> int:
    # The largest power of two that is below at least half of the prompts (graphs
    # and kernels are tuned to powers of two), and never above the threshold. Not
    # below the largest number of sequences that vLLM takes by default, because
    # vLLM refuses such a pair.
    below = 1 << max(0, min(median, threshold).bit_length() - 1)
    return max(LARGEST_DEFAULT_SEQS, below)
