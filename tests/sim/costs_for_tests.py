"""A cost source that anyone can check by hand."""

from dataclasses import dataclass

from chunkwise.cost.step import ErrorQuantiles, Provenance, StepShape, search_largest_chunk

NOWHERE = Provenance("test", "none", "none")


@dataclass(frozen=True)
class LinearCost:
    """Milliseconds by the token, a little by the context."""

    provenance: Provenance = NOWHERE
    error: ErrorQuantiles | None = None

    def seconds(self, shape: StepShape) -> float:
        if not shape.tokens:
            return 0.0
        work = 2e-5 * shape.prefill_tokens + 1e-9 * shape.prefill_work
        return 0.002 + work + 1e-5 * shape.decodes + 1e-9 * shape.decode_context

    def covers(self, shape: StepShape) -> bool:
        return shape.prefill_tokens <= 200

    def largest_chunk(self, shape: StepShape, allowance: float, context: int, at_most: int) -> int:
        return search_largest_chunk(self.seconds, shape, allowance, context, at_most)
