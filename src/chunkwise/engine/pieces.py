"""Where a prompt may be cut: only at multiples of a piece, however full a step is.

vLLM fills a step to the last token, so the prompt at its edge is cut wherever
the budget ends, even a short one that would fit the next step whole. Invariant:
a prompt is delayed by this only while others use the step, never for good,
because a piece always fits a step that carries nothing but decodes.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pieces:
    """Usage: `Pieces(2048, all_prompts=False).allow(prompt=47, computed=0, offered=7) == 0`."""

    size: int
    # False: only prompts of up to one piece are kept whole. True: every prompt is
    # cut at the same places in every run.
    all_prompts: bool

    def fits(self, budget: int, seqs: int, cap: int = 0) -> bool:
        """Tell whether a piece fits a step beside the most decodes, and vLLM's cap a prompt."""
        return self.size + seqs <= budget and (cap == 0 or self.size <= cap)

    def allow(self, prompt: int, computed: int, offered: int) -> int:
        """Return how many of the offered tokens the prompt may take now: a piece, or none."""
        if computed >= prompt or (prompt > self.size and not self.all_prompts):
            return offered
        end = min(prompt, (computed // self.size + 1) * self.size)
        if offered < end - computed:
            return 0
        # A preempted request also recomputes what it had written after its prompt.
        return offered if end == prompt else end - computed
