"""From prompt lengths to an offline engine's settings, with the reason in a line.

`verdict.py` says whether to cut; memory says how large a step may be. Offline,
nobody watches tokens arrive, and cutting a prompt makes nothing faster: so the
budget is as large as vLLM takes it, and is lowered only where scoring prompts
would not fit. Invariant: what the user set is never overruled.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from chunkwise.cost.memory import Device, largest_scoring_budget
from chunkwise.cost.shape import ModelShape
from chunkwise.engine.pieces import Pieces
from chunkwise.settings import Settings
from chunkwise.verdict import SELECTIVE_BELOW, UNCUT_BELOW, Verdict, decide

OFFLINE = "Cutting bounds a step's memory and time; it does not raise offline throughput."


@dataclass(frozen=True, slots=True)
class ScoringRoom:
    """What scoring prompts may take, and on what."""

    shape: ModelShape
    limit: int
    device: Device

    def fits(self, longest: int) -> int:
        """Return the largest budget that stays within the limit; 0 for none."""
        return largest_scoring_budget(self.shape, self.limit, longest, self.device)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to build, and the line that says why."""

    verdict: Verdict
    settings: Settings
    pieces: Pieces | None
    line: str


def judge(lengths: Sequence[int]) -> Verdict:
    """Return the verdict on these prompts. Usage: `judge([47, 47, 2156]).name`."""
    ordered = sorted(lengths)
    count = len(ordered)

    def quantile(percent: int) -> int:
        return ordered[max(0, -(-percent * count // 100) - 1)]

    def share_above(length: int) -> float:
        return sum(n > length for n in ordered) / count

    return decide(ordered[-1], quantile(95), quantile(50), share_above)


def decide_offline(
    lengths: Sequence[int],
    asked: Settings,
    default_budget: int,
    default_seqs: int,
    room: ScoringRoom | None = None,
) -> Decision:
    """Choose settings for these prompts. `room` is given when prompts are scored."""
    verdict = judge(lengths)
    chosen = verdict.settings.model_copy(update=asked.to_llm())
    why = verdict.reason
    if verdict.name == "cut":
        why += f" {OFFLINE}"
    budget = chosen.max_num_batched_tokens or default_budget
    if room is not None and asked.max_num_batched_tokens is None:
        fits = room.fits(max(lengths))
        if 0 < fits < budget:
            budget = fits
            why += (
                f" Scoring prompts over a vocabulary of {room.shape.vocab:,} needs the budget "
                f"at {fits:,} to stay within the memory that is free."
            )
            # vLLM refuses a budget below the number of sequences.
            seqs = min(chosen.max_num_seqs or default_seqs, fits)
            chosen = chosen.model_copy(
                update={"max_num_batched_tokens": budget, "max_num_seqs": seqs}
            )
    whole = {"uncut": UNCUT_BELOW, "selective": SELECTIVE_BELOW}.get(verdict.name)
    said = ", ".join(f"{k}={v}" for k, v in chosen.to_llm().items() if k not in asked.to_llm())
    line = f"{verdict.name} ({said or 'stock settings'}): {why}"
    return Decision(verdict, chosen, Pieces(whole, False) if whole else None, line)


def drift(before: Verdict, lengths: Sequence[int]) -> str | None:
    """Say which setting these prompts would need now, if it is another one."""
    now = judge(lengths)
    if now.name == before.name:
        return None
    setting = ", ".join(f"{k}={v}" for k, v in now.settings.to_llm().items()) or "stock settings"
    return f"was {before.name}, would now be {now.name}: {now.reason} Use {setting}"
