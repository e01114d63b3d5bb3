"""How far below the target to aim, learned from the steps that came close to it.

Steps vary, and a short answer has few gaps: one late step breaks its promise.
Quantiles of past errors react too slowly and too timidly; so each step near the
limit moves the margin: far up if it was late, a little down if not. It settles
where one step in a thousand is late. Some steps no margin would have saved,
because the machine did something else meanwhile. Where they are many, small
chunks buy little: they only make more steps for the machine to spoil. So such a
step moves the margin down as far as a late one moves it up, and it settles where
about as many are late by their size as by the machine. Invariant: the margin
stays in [0, 1].
"""

START = 0.3
RATE = 0.05
LATE_SHARE = 0.001
MOST = 1.0
NEAR = 0.8  # of the allowance, by the prediction; below, a step says nothing about the limit


class Margin:
    """Usage: `allowance = margin.within(target)`; `margin.learn(seconds, predicted, target)`."""

    __slots__ = ("value",)

    def __init__(self, value: float = START):
        self.value = value

    def within(self, target: float) -> float:
        """Return the seconds that a step may be predicted to take."""
        return target / (1.0 + self.value)

    def learn(self, seconds: float, predicted: float, target: float) -> None:
        """Take in a step that was planned near the limit."""
        moved = self.value - RATE * LATE_SHARE
        if seconds > target:
            hopeless = seconds > (1.0 + MOST) * predicted  # late with the widest margin, too
            moved += -RATE if hopeless else RATE
        self.value = min(MOST, max(0.0, moved))
