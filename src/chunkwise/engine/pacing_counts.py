"""What the pacer counts of itself, in plain numbers that another thread may read.

Invariant: only the engine's thread writes; adding costs a bisection at most.
"""

from bisect import bisect_left

SHARES = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 5.0)
ERRORS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)


class PacingCounts:
    """Usage: `counts.step(seconds / allowance, abs(predicted / seconds - 1))`."""

    __slots__ = (
        "acting",
        "decode_only",
        "ejected",
        "errors",
        "fallbacks",
        "margin",
        "relegations",
        "shares",
        "turns",
    )

    def __init__(self) -> None:
        self.acting = True
        self.ejected = ""  # why
        self.decode_only = 0  # steps without prefill although prompts waited
        self.relegations = 0  # prompts that were set aside for good
        self.turns = 0  # steps that went to the oldest of those
        self.fallbacks = 0  # steps that were left to vLLM
        self.margin = 0.0
        self.shares = [0] * (len(SHARES) + 1)  # of mixed steps: seconds / allowance
        self.errors = [0] * (len(ERRORS) + 1)  # of the prediction, relative

    def step(self, share: float, error: float) -> None:
        """Count a step with decodes and prefill."""
        self.shares[bisect_left(SHARES, share)] += 1
        self.errors[bisect_left(ERRORS, error)] += 1
