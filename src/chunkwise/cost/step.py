"""What a step carries, and the one question asked of every cost source: how long does it take?

A `StepShape` keeps sums, not lists: adding a chunk or a decode is a handful of
additions, and no source needs more than the sums to price it, so that a
scheduler can ask a dozen times a step and a simulator millions of times.
Invariant of every `StepCost`: `seconds` never falls when a token, a decode or
context is added, hence `largest_chunk` is exact: one more token would not fit.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

STRAIGHT = 8  # draws on a line before the search halves instead


class StepShape(NamedTuple):
    """Usage: `StepShape.of(chunks=[(512, 4096)], decodes=[900, 1200]).with_chunk(128, 0)`.

    A tuple, because several are made in every step and a frozen dataclass takes twice as long.
    """

    prefill_tokens: int = 0
    chunks: int = 0
    prefill_work: float = 0.0
    """Sum of chunk x (context + chunk / 2): the pairs that the chunks' attention computes."""
    decodes: int = 0
    decode_context: int = 0
    """Sum of the contexts that the decodes read."""

    @classmethod
    def of(cls, chunks: Iterable[tuple[int, int]] = (), decodes: Iterable[int] = ()) -> "StepShape":
        """Return the shape of chunks as (new tokens, context before) and decodes as contexts."""
        sizes = [(tokens, context) for tokens, context in chunks if tokens > 0]
        contexts = list(decodes)
        return cls(
            sum(tokens for tokens, _ in sizes),
            len(sizes),
            sum(tokens * (context + tokens / 2) for tokens, context in sizes),
            len(contexts),
            sum(contexts),
        )

    def with_chunk(self, tokens: int, context: int) -> "StepShape":
        """Return the shape with one chunk more; one of no tokens changes nothing."""
        if tokens <= 0:
            return self
        return StepShape(
            self.prefill_tokens + tokens,
            self.chunks + 1,
            self.prefill_work + tokens * (context + tokens / 2),
            self.decodes,
            self.decode_context,
        )

    def with_decode(self, context: int) -> "StepShape":
        """Return the shape with one decode more."""
        return self.with_decodes(1, context)

    def with_decodes(self, count: int, context: int) -> "StepShape":
        """Return the shape with `count` decodes more, whose contexts sum to `context`."""
        return StepShape(
            self.prefill_tokens,
            self.chunks,
            self.prefill_work,
            self.decodes + count,
            self.decode_context + context,
        )

    @property
    def tokens(self) -> int:
        """Tokens of the whole step: what counts against the budget."""
        return self.prefill_tokens + self.decodes


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a cost comes from, and what to keep in mind with it."""

    source: str  # "silicon", "calibration", "live"
    model: str
    device: str
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    engine: str = ""  # version of the engine that it describes; empty if of none in particular
    notes: tuple[str, ...] = ()  # low-fidelity rows, terms that are declared unknown


@dataclass(frozen=True, slots=True)
class ErrorQuantiles:
    """Quantiles of |predicted - measured| / measured over `steps` steps."""

    steps: int
    p50: float
    p90: float
    p95: float
    p99: float


class StepCost(Protocol):
    """Seconds of a step. Usage: `cost.largest_chunk(running, 0.050, context, at_most=2048)`."""

    @property
    def provenance(self) -> Provenance:
        """Where these costs come from."""
        ...

    @property
    def error(self) -> ErrorQuantiles | None:
        """How far off it was where it was checked; None where nobody measured."""
        ...

    def seconds(self, shape: StepShape) -> float:
        """Return how long a step of this shape takes; an empty one takes nothing."""
        ...

    def covers(self, shape: StepShape) -> bool:
        """Tell whether the shape lies within what the source has seen."""
        ...

    def largest_chunk(self, shape: StepShape, allowance: float, context: int, at_most: int) -> int:
        """Return the most tokens of one more chunk, at its context, that keep the allowance.

        0 if not even one token fits; never more than `at_most`.
        """
        ...


def search_largest_chunk(
    seconds: Callable[[StepShape], float],
    shape: StepShape,
    allowance: float,
    context: int,
    at_most: int,
) -> int:
    """Answer `largest_chunk` for any monotone cost, in about half of log2(at_most) prices.

    Costs are nearly straight in the tokens, so the place is drawn on the line between
    the two ends; an end that stays put is pulled in (the Illinois rule), and a cost
    that is not straight at all is halved instead.
    """
    low, high = 0, max(0, at_most)
    if not high:
        return 0
    above = seconds(shape.with_chunk(high, context)) - allowance
    if above <= 0:
        return high
    below = seconds(shape) - allowance
    side = turn = 0
    while high - low > 1:  # low fits, or is nothing; high does not fit
        turn += 1
        line = low + int((high - low) * below / (below - above)) if below < 0 else low
        middle = (low + high) // 2 if turn > STRAIGHT else min(max(line, low + 1), high - 1)
        over = seconds(shape.with_chunk(middle, context)) - allowance
        if over <= 0:
            low, below = middle, over
            above = above / 2 if side < 0 else above
            side = -1
        else:
            high, above = middle, over
            below = below / 2 if side > 0 else below
            side = 1
    return low
