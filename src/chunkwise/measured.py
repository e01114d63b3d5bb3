"""What happened to a request, in token times, and what follows from them.

One type for simulated, replayed and observed runs, so that all of them are
judged by the same arithmetic. A *gap* is the time between two tokens of one
request; the first token's wait is its TTFT and not a gap.
"""

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """When one request arrived and when each token came, in seconds on one clock."""

    arrival: float
    tokens: tuple[float, ...]

    @property
    def ttft(self) -> float:
        """Seconds from arrival to the first token."""
        return self.tokens[0] - self.arrival

    @property
    def gaps(self) -> tuple[float, ...]:
        """Seconds between consecutive tokens."""
        return tuple(later - earlier for earlier, later in pairwise(self.tokens))

    @property
    def worst_gap(self) -> float:
        """The longest wait between two tokens; 0 for a single token."""
        return max(self.gaps, default=0.0)

    @property
    def end_to_end(self) -> float:
        """Seconds from arrival to the last token."""
        return self.tokens[-1] - self.arrival
