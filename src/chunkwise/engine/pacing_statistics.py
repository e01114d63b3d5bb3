"""What the pacer counts, as metrics beside those of observing.

Invariant: called by the scribe only, outside the step's path; it reads plain
numbers that the engine's thread writes, and adds what is new.
"""

from typing import Any

from chunkwise.engine.pacing_counts import ERRORS, SHARES, PacingCounts
from chunkwise.observed import Header

COUNTED = {
    "decode_only_steps": ("decode_only", "Steps without prefill although prompts waited."),
    "relegations": ("relegations", "Prompts set aside because they cannot be in time."),
    "turns": ("turns", "Steps given to the oldest of those set aside."),
    "fallbacks": ("fallbacks", "Steps left to vLLM's own decision."),
}


class PacingStatistics:
    """Usage: `PacingStatistics(header, registry, pacer.counts).settle()`."""

    def __init__(self, header: Header, registry: Any, counts: PacingCounts):
        from prometheus_client import Counter, Gauge

        self._counts = counts
        self._seen: dict[str, int] = {}
        engine = str(header.engine)

        def made(kind: Any, name: str, text: str, *labels: str, **more: Any) -> Any:
            full = f"chunkwise_pacing_{name}"
            metric = kind(full, text, ("engine", *labels), registry=registry, **more)
            return metric if labels else metric.labels(engine)

        latest = {"multiprocess_mode": "mostrecent"}
        self._acting = made(Gauge, "acting", "1 while the pacer acts, 0 once it gave up.", **latest)
        self._margin = made(Gauge, "margin", "How far below the target steps aim.", **latest)
        self._single = {name: made(Counter, name, text) for name, (_, text) in COUNTED.items()}
        shares = made(Counter, "step_shares", "Mixed steps up to `le` of the allowance.", "le")
        errors = made(Counter, "errors", "Mixed steps predicted within `le`.", "le")
        self._buckets = {
            "shares": [shares.labels(engine, le) for le in (*map(str, SHARES), "+Inf")],
            "errors": [errors.labels(engine, le) for le in (*map(str, ERRORS), "+Inf")],
        }

    def settle(self) -> None:
        """Bring what was counted since the last time into the registry."""
        self._acting.set(float(self._counts.acting))
        self._margin.set(self._counts.margin)
        for name, (field, _) in COUNTED.items():
            self._single[name].inc(self._new(field, getattr(self._counts, field)))
        for field, buckets in self._buckets.items():
            total = 0
            for place, (count, bucket) in enumerate(
                zip(list(getattr(self._counts, field)), buckets, strict=True)
            ):
                total += self._new(f"{field}{place}", count)
                bucket.inc(total)

    def _new(self, name: str, count: int) -> int:
        new = count - self._seen.get(name, 0)
        self._seen[name] = count
        return new
