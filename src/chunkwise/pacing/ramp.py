"""How large a chunk may be while the cost of chunks is not known yet.

From nothing: begin with 256 tokens, grow while steps stay well within the
target, shrink when one does not, and ask no prediction: one from a few steps may
say that nothing ever fits, and would never learn better. Once enough chunks were
seen beside decodes, the prediction decides, but never more than a step beyond
the largest chunk ever seen. With an expectation that nobody measured here, both
bound: the prediction from the first step on, the growth until enough were seen.
Invariant: at least `LEAST` tokens.
"""

from math import inf

START = 256
GROW, SHRINK = 1.3, 0.7
FULL = 0.7  # a step says something about the cap if it carried this share of it
EASY = 0.8  # of the target
LEAST = 16
ENOUGH = 40  # steps with prefill beside decodes until the prediction is trusted


class Ramp:
    """Usage: `most = ramp.most()`; after each step `ramp.learn(tokens, seconds, target)`."""

    __slots__ = ("_cap", "_expected", "_largest", "_seen")

    def __init__(self, largest: int = 0, expected: bool = False):
        self._cap = float(START)
        self._largest = largest  # prefill tokens of a step, of a calibration if there is one
        self._seen = ENOUGH if largest else 0
        self._expected = expected

    @property
    def done(self) -> bool:
        """Whether the prediction decides."""
        return self._expected or self._seen >= ENOUGH

    def most(self) -> int:
        """Return the most prefill tokens that a step beside decodes may carry."""
        if self._seen >= ENOUGH:
            return max(LEAST, int(self._largest * GROW), int(self._cap))
        return int(self._cap)

    def saw(self, tokens: int) -> None:
        """Take in a step with prefill that nobody waited for: it says nothing about the cap."""
        self._largest = max(self._largest, tokens)

    def learn(self, tokens: int, seconds: float, target: float) -> None:
        """Take in a step with prefill beside decodes; with no target yet the cap stays."""
        self.saw(tokens)
        self._seen += tokens > 0
        if self._seen >= ENOUGH:
            self._cap = 0.0  # from here on the largest one seen bounds
        elif seconds > target:
            self._cap = max(float(LEAST), self._cap * SHRINK)
        elif tokens >= FULL * self._cap and seconds <= EASY * target < inf:
            self._cap *= GROW
