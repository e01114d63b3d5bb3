"""Seconds of a step, fitted to steps that an engine really took.

Seven terms, each a sum of a `StepShape` times a cost that is never negative:
fixed, any prefill at all, each prefill token, each chunk, each pair of tokens in
the chunks' attention, each decode, and each token of context a decode reads.
Fitted on relative error, because a step of 5 ms that is 1 ms off is as wrong as
one of 50 that is 10 off. Invariant: adding work never lowers the price, and a
shape beyond the largest one fitted is not `covered`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from chunkwise.cost.nnls import Floats, nnls
from chunkwise.cost.step import ErrorQuantiles, Provenance, StepShape
from chunkwise.errors import UserMistake

TERMS = ("fixed", "prefill", "token", "chunk", "pair", "decode", "decode_context")
CONTEXT_TERMS = ("pair", "decode_context")
LEAST_STEPS = 30
ROBUST_ROUNDS = 6
SCATTER_GROUPS = 100
Row = tuple[float, float, float, float, float, float, float]


def row_of(shape: StepShape) -> Row:
    """Return what the seven terms are multiplied with."""
    return (
        1.0,
        1.0 if shape.chunks else 0.0,
        float(shape.prefill_tokens),
        float(shape.chunks),
        shape.prefill_work,
        float(shape.decodes),
        float(shape.decode_context),
    )


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Seconds of each term."""

    fixed: float
    prefill: float
    token: float
    chunk: float
    pair: float
    decode: float
    decode_context: float

    def seconds(self, shape: StepShape) -> float:
        """Return the price of a step; an empty one takes nothing."""
        if not shape.prefill_tokens and not shape.decodes:
            return 0.0
        price = (
            self.fixed + self.decode * shape.decodes + self.decode_context * shape.decode_context
        )
        if shape.chunks:
            price += self.prefill + self.token * shape.prefill_tokens
            price += self.chunk * shape.chunks + self.pair * shape.prefill_work
        return price

    def largest_chunk(self, shape: StepShape, allowance: float, context: int, at_most: int) -> int:
        """Solve the price of one more chunk, a quadratic in its tokens, for the allowance."""
        left = allowance - self.seconds(shape.with_chunk(1, context))
        if at_most <= 0 or left < 0:
            return 0
        slope = self.token + self.pair * (context + 1)
        if self.pair > 0:  # pair/2 more², slope more <= left, for the tokens after the first
            root = math.sqrt(slope * slope + 2 * self.pair * left)
            more = 2 * left / (slope + root) if root > 0 else math.inf
        else:
            more = left / slope if slope > 0 else math.inf
        tokens = at_most if more >= at_most else min(at_most, 1 + int(more))
        # The last digit of a float decides between two sizes: ask the price itself.
        while tokens < at_most and self.seconds(shape.with_chunk(tokens + 1, context)) <= allowance:
            tokens += 1
        while tokens > 1 and self.seconds(shape.with_chunk(tokens, context)) > allowance:
            tokens -= 1
        return tokens


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest sums among the fitted steps."""

    prefill_tokens: int = 0
    chunks: int = 0
    prefill_work: float = 0.0
    decodes: int = 0
    decode_context: int = 0

    def covers(self, shape: StepShape) -> bool:
        """Tell whether nothing in the shape is larger."""
        return (
            shape.prefill_tokens <= self.prefill_tokens
            and shape.chunks <= self.chunks
            and shape.prefill_work <= self.prefill_work
            and shape.decodes <= self.decodes
            and shape.decode_context <= self.decode_context
        )

    def with_shape(self, shape: StepShape) -> "Largest":
        """Return the largest of both."""
        return Largest(
            max(self.prefill_tokens, shape.prefill_tokens),
            max(self.chunks, shape.chunks),
            max(self.prefill_work, shape.prefill_work),
            max(self.decodes, shape.decodes),
            max(self.decode_context, shape.decode_context),
        )


@dataclass(frozen=True, slots=True)
class FittedCost:
    """Usage: `fit(steps, provenance).seconds(StepShape.of([(256, 1024)], [300] * 8))`."""

    coefficients: Coefficients
    provenance: Provenance
    error: ErrorQuantiles
    largest: Largest
    unknown: tuple[str, ...] = ()
    """Terms that the source could not tell: they are priced at nothing."""
    products: tuple[tuple[float, ...], ...] = ()
    """Mean products of the relative rows: what the live fit starts from."""
    scatter: tuple[float, ...] = ()
    """Measured / predicted of the fitted steps: means of equal groups, in order."""

    def seconds(self, shape: StepShape) -> float:
        """Return how long a step of this shape takes."""
        return self.coefficients.seconds(shape)

    def covers(self, shape: StepShape) -> bool:
        """Tell whether steps as large as this one were fitted."""
        return self.largest.covers(shape)

    def largest_chunk(self, shape: StepShape, allowance: float, context: int, at_most: int) -> int:
        """Return the most tokens of one more chunk that keep the allowance."""
        return self.coefficients.largest_chunk(shape, allowance, context, at_most)


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step that was taken, and how long it took."""

    shape: StepShape
    seconds: float


def fit(
    steps: Sequence[TimedStep], provenance: Provenance, unknown: tuple[str, ...] = ()
) -> FittedCost:
    """Fit the seven terms; those in `unknown` are left at nothing.

    A busy machine makes some steps late, never early: after a first fit, steps
    far from it count for less, so that the typical step decides.
    """
    timed = [step for step in steps if step.seconds > 0 and step.shape.tokens]
    if len(timed) < LEAST_STEPS:
        raise UserMistake(
            f"{len(timed)} timed steps are too few to fit a cost ({LEAST_STEPS} at least): "
            f"record for longer."
        )
    known = np.array([name not in unknown for name in TERMS])
    rows = np.array([row_of(step.shape) for step in timed]) * known
    rows /= np.array([step.seconds for step in timed])[:, None]
    weights = np.ones(len(rows))
    found = np.zeros(len(TERMS))
    for _ in range(ROBUST_ROUNDS):
        weighted = rows * weights[:, None]
        found = nnls(weighted.T @ rows, weighted.sum(axis=0))
        # Late steps pull a relative fit down: set the typical step right.
        found /= max(float(np.median(rows @ found)), 1e-9)
        off = np.abs(rows @ found - 1)
        usual = max(float(np.median(off)), 1e-9)
        weights = np.minimum(1.0, 1.5 * usual / np.maximum(off, 1e-12))
    weighted = rows * weights[:, None]
    return FittedCost(
        Coefficients(*found.tolist()),
        provenance,
        quantiles(off),
        reduce(Largest.with_shape, (step.shape for step in timed), _unjudged(unknown)),
        unknown,
        tuple(map(tuple, (weighted.T @ rows / weights.sum()).tolist())),
        _scatter(1 / np.maximum(rows @ found, 1e-9)),
    )


def _scatter(ratios: Floats) -> tuple[float, ...]:
    """Groups, because a file should stay small; their means, so that no time is lost."""
    groups = np.array_split(np.sort(ratios), min(SCATTER_GROUPS, len(ratios)))
    return tuple(float(group.mean()) for group in groups)


def _unjudged(unknown: tuple[str, ...]) -> Largest:
    """What a source cannot tell cannot be outside of what it saw."""
    everything = 2**53
    return Largest(
        prefill_work=float(everything) if "pair" in unknown else 0.0,
        decode_context=everything if "decode_context" in unknown else 0,
    )


def quantiles(off: Floats) -> ErrorQuantiles:
    """Return the quantiles of relative errors."""
    return ErrorQuantiles(len(off), *np.quantile(np.abs(off), (0.5, 0.9, 0.95, 0.99)).tolist())


def errors(cost: FittedCost, steps: Iterable[TimedStep]) -> Floats:
    """Return predicted / measured - 1 of each step."""
    return np.array([cost.seconds(step.shape) / step.seconds - 1 for step in steps])
