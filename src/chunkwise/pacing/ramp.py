"""How large a chunk may be while the cost of chunks is not known yet.

From nothing: begin with 256 tokens, grow while steps stay well within the
target, shrink when one does not. Once enough chunks were seen, the prediction
decides, but never more than a step beyond the largest chunk ever seen: where no
measurement is, no prediction is trusted. Invariant: at least `LEAST` tokens.
"""

START = 256
GROW, SHRINK = 1.3, 0.7
FULL = 0.7  # a step says something about the cap if it carried this share of it
EASY = 0.8  # of the target
LEAST = 16
ENOUGH = 40  # steps with prefill until the prediction is trusted


class Ramp:
    """Usage: `most = ramp.most()`; after each step `ramp.learn(tokens, seconds, target)`."""

    __slots__ = ("_cap", "_largest", "_seen")

    def __init__(self, largest: int = 0):
        self._cap = float(START)
        self._largest = largest  # prefill tokens of a step, of a calibration if there is one
        self._seen = ENOUGH if largest else 0

    @property
    def done(self) -> bool:
        """Whether the prediction decides."""
        return self._seen >= ENOUGH

    def most(self) -> int:
        """Return the most prefill tokens that a step beside decodes may carry."""
        if self.done:
            return max(LEAST, int(self._largest * GROW), int(self._cap))
        return int(self._cap)

    def learn(self, tokens: int, seconds: float, target: float) -> None:
        """Take in a step with prefill."""
        if tokens <= 0:
            return
        self._seen += 1
        self._largest = max(self._largest, tokens)
        if self.done:
            self._cap = 0.0  # from here on the largest one seen bounds
        elif seconds > target:
            self._cap = max(float(LEAST), self._cap * SHRINK)
        elif tokens >= FULL * self._cap and seconds <= EASY * target:
            self._cap *= GROW
