"""How far below the target to aim, learned from the steps that came close to it.

Steps vary, and a short answer has few gaps: one late step breaks its promise.
Quantiles of past errors react too slowly and too timidly; so each step near the
limit moves the margin: far up if it was late, a little down if not. It settles
where one step in a thousand is late. Invariant: the margin stays in [0, 1].
"""

START = 0.3
RATE = 0.05
LATE_SHARE = 0.001
MOST = 1.0
NEAR = 0.8  # of the allowance, by the prediction; below, a step says nothing about the limit


class Margin:
    """Usage: `allowance = margin.within(target)`; then `margin.learn(seconds, target)`."""

    __slots__ = ("value",)

    def __init__(self, value: float = START):
        self.value = value

    def within(self, target: float) -> float:
        """Return the seconds that a step may be predicted to take."""
        return target / (1.0 + self.value)

    @staticmethod
    def could_help(seconds: float, predicted: float) -> bool:
        """Tell whether a step was near enough to its prediction for any margin to matter.

        One that took over twice as long (the machine did something else) would have been
        late with the widest margin too: to learn from it would only make all others small.
        """
        return seconds <= (1.0 + MOST) * predicted

    def learn(self, seconds: float, target: float) -> None:
        """Take in a step that was planned near the limit."""
        moved = self.value + RATE * ((seconds > target) - LATE_SHARE)
        self.value = min(MOST, max(0.0, moved))
