"""What vLLM's own metrics do not say about chunked prefill, counted from records.

Names begin with `chunkwise_`, labels are the engine's number, the kind of step,
the cause of a gap and the configured classes: nothing that a client can invent.
Invariant: called by the scribe only, outside the step's path.
"""

from bisect import bisect_left
from typing import Any

from chunkwise.engine.failopen import BROKEN_PARTS
from chunkwise.observed import OTHER, Header, Record, Request, Step
from chunkwise.readers.gaps import CAUSES, GapFinder

SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0),
)
TOKENS = (0, 1, 8, 32, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
CHUNKS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
MEMORY = 0.98  # of the moving average: about the last fifty steps


class Statistics:
    """Usage: `Statistics(header, registry).take(record)`; `registry` is prometheus_client's."""

    def __init__(self, header: Header, registry: Any):
        from prometheus_client import Counter, Gauge, Histogram

        engine = str(header.engine)
        self._itl = header.itl
        self._finder = GapFinder()
        self._gaps = [0] * (len(SECONDS) + 1)
        self._prefill_steps = self._mixed_steps = 0
        self._chunk_seconds: float | None = None
        self._dropped = 0

        def made(kind: Any, name: str, text: str, *labels: str, **more: Any) -> Any:
            full = f"chunkwise_{name}"
            metric = kind(full, text, ("engine", *labels), registry=registry, **more)
            return metric if labels else metric.labels(engine)

        def each(metric: Any, values: tuple[str, ...]) -> dict[str, Any]:
            # All series from the start: a rate needs a zero to begin with.
            return {value: metric.labels(engine, value) for value in values}

        latest = {"multiprocess_mode": "mostrecent"}
        kinds = ("prefill", "mixed", "decode")
        classes = (*header.classes, OTHER)
        self._step_seconds = each(
            made(Histogram, "step_seconds", "Seconds of a step.", "kind", buckets=SECONDS), kinds
        )
        self._prefill_tokens = made(
            Histogram, "step_prefill_tokens", "Prefill tokens of a step.", buckets=TOKENS
        )
        self._decode_tokens = made(
            Histogram, "step_decode_tokens", "Decode tokens of a step.", buckets=TOKENS
        )
        self._interleaving = made(
            Gauge, "interleaving_ratio", "Steps with prefill and decode ÷ with prefill.", **latest
        )
        self._chunk_time = made(
            Gauge, "chunk_seconds", "Moving average of steps with a chunk in them.", **latest
        )
        self._request_chunks = each(
            made(Histogram, "request_chunks", "Chunks of a prompt.", "class", buckets=CHUNKS),
            classes,
        )
        self._uncached = each(
            made(Counter, "uncached_prompt_tokens", "Prompt tokens not in the cache.", "class"),
            classes,
        )
        self._gap_buckets = each(
            made(Counter, "gaps", "Gaps between tokens up to `le` seconds.", "le"),
            (*(str(bound) for bound in SECONDS), "+Inf"),
        )
        self._stalls = each(
            made(Counter, "stalls", "Gaps over the target CHUNKWISE_ITL.", "cause"), CAUSES
        )
        self._stall_seconds = each(
            made(Counter, "stall_seconds", "Seconds of gaps beyond the target.", "cause"), CAUSES
        )
        self._preemptions = made(Counter, "preemptions", "Requests put back for want of KV cache.")
        self._lost = made(Counter, "dropped_records", "Records lost because the ring was full.")
        self._failures = made(Gauge, "failures", "Parts of Chunkwise that stepped aside.", **latest)

    def take(self, record: Record) -> None:
        """Count one record."""
        for gap in self._finder.take(record):
            self._gaps[bisect_left(SECONDS, gap.seconds)] += gap.requests
            if self._itl is not None and gap.seconds > self._itl:
                self._stalls[gap.cause].inc(gap.requests)
                self._stall_seconds[gap.cause].inc((gap.seconds - self._itl) * gap.requests)
        if isinstance(record, Request):
            self._request(record)
        else:
            self._step(record)

    def settle(self, dropped: int) -> None:
        """Bring what is counted in sums into the registry."""
        total = 0
        for count, bucket in zip(self._gaps, self._gap_buckets.values(), strict=True):
            total += count
            if total:
                bucket.inc(total)
        self._gaps = [0] * len(self._gaps)
        if self._prefill_steps:
            self._interleaving.set(self._mixed_steps / self._prefill_steps)
        if self._chunk_seconds is not None:
            self._chunk_time.set(self._chunk_seconds)
        self._lost.inc(dropped - self._dropped)
        self._dropped = dropped
        self._failures.set(len(BROKEN_PARTS))

    def _step(self, step: Step) -> None:
        self._step_seconds[step.kind].observe(step.seconds)
        self._prefill_tokens.observe(step.prefill_tokens)
        self._decode_tokens.observe(step.decode_tokens)
        if step.preempted:
            self._preemptions.inc(len(step.preempted))
        if step.chunks:
            self._prefill_steps += 1
            self._mixed_steps += step.decodes > 0
            before = self._chunk_seconds
            self._chunk_seconds = (
                step.seconds if before is None else MEMORY * before + (1 - MEMORY) * step.seconds
            )

    def _request(self, request: Request) -> None:
        if request.scheduled is not None:
            self._request_chunks[request.name].observe(request.chunks)
            self._uncached[request.name].inc(max(0, request.prompt - request.cached))
