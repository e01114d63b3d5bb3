"""The simple rules that people know, to compare with: each says a step's token budget.

They see what such rules see: how many decode, and how long the last step took.
The simplest, the same in every step, is vLLM's own `max_num_batched_tokens`.
`engine/rule_schedulers.py` runs them in the simulator.
"""

from typing import Protocol


class Rule(Protocol):
    """Usage: `budget = rule.budget(decodes, last_seconds)`."""

    def budget(self, decodes: int, last_seconds: float) -> int:
        """Return the tokens that the next step may carry."""
        ...


class HalveOrDouble:
    """Half as much when a step beside decodes passed the target, twice when well below it."""

    def __init__(self, target: float, least: int = 64, most: int = 8192):
        self._target, self._least, self._most = target, least, most
        self._tokens = most

    def budget(self, decodes: int, last_seconds: float) -> int:
        """Return the tokens that the next step may carry."""
        if decodes and last_seconds > self._target:
            self._tokens = max(self._least, self._tokens // 2)
        elif last_seconds < self._target / 2:
            self._tokens = min(self._most, self._tokens * 2)
        return self._tokens


class ByLoad:
    """64, 128 or 256 prefill tokens: fewer, the more requests generate."""

    def __init__(self, seqs: int):
        self._seqs = max(1, seqs)

    def budget(self, decodes: int, last_seconds: float) -> int:
        """Return the tokens that the next step may carry."""
        load = decodes / self._seqs
        return decodes + (64 if load > 0.5 else 128 if load > 0.2 else 256)
