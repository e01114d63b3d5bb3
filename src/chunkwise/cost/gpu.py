"""The price of a GPU step: curves over its sums, and the terms beside the kernels.

Needs nothing but numpy; `silicon.py` reads the curves from measured tables.
Invariant: every curve and every term never falls when work is added, so neither
does their sum.
"""

from dataclasses import dataclass

from chunkwise.cost.curves import Curve, CurveSum
from chunkwise.cost.graphs import Graphs, StepTerms
from chunkwise.cost.step import Provenance, StepShape, search_largest_chunk


@dataclass(frozen=True, slots=True)
class Extent:
    """How far the tables were read."""

    tokens: int
    prefill_work: float
    decode_context: int


@dataclass(frozen=True, slots=True)
class SiliconCost:
    """Usage: `silicon.load("Qwen/Qwen3-8B", "h100_sxm").seconds(StepShape.of([(512, 0)]))`."""

    provenance: Provenance
    terms: StepTerms
    graphs: Graphs
    compute: Curve  # of tokens: everything but attention, exchange and logits
    exchange: Curve  # of tokens: all-reduce and the like
    logits: Curve  # of requests
    chunk_attention: CurveSum  # of prefill tokens and work
    decode_attention: CurveSum  # of decodes and their context
    seen: Extent
    table_error: float  # median distance of a step's curves from the tables, relative

    @property
    def error(self) -> None:
        """Nobody measured this GPU with this model here; calibrate to know."""
        return

    def seconds(self, shape: StepShape) -> float:
        """Return how long a step takes, all pipeline stages together."""
        tokens = shape.prefill_tokens + shape.decodes
        if tokens == 0:
            return 0.0
        terms = self.terms
        requests = shape.chunks + shape.decodes
        padded = self.graphs.padded(tokens)
        kernels = self.compute(padded) + self.logits(requests)
        if shape.decodes:
            kernels += self.decode_attention(shape.decodes, shape.decode_context)
        if shape.chunks:
            kernels += self.chunk_attention(shape.prefill_tokens, shape.prefill_work)
            if tokens > terms.prefill_over:
                kernels = max(kernels * terms.prefill_factor, terms.prefill_floor)
        kernels += self.exchange(padded)
        in_graph = self.graphs.seconds(kernels, tokens, decode_only=not shape.chunks)
        return in_graph + terms.host + terms.host_per_request * requests

    def covers(self, shape: StepShape) -> bool:
        """Tell whether the tables were read this far."""
        return (
            shape.tokens <= self.seen.tokens
            and shape.prefill_work <= self.seen.prefill_work
            and shape.decode_context <= self.seen.decode_context
        )

    def largest_chunk(self, shape: StepShape, allowance: float, context: int, at_most: int) -> int:
        """Return the most tokens of one more chunk that keep the allowance."""
        return search_largest_chunk(self.seconds, shape, allowance, context, at_most)
