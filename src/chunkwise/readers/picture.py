"""What a capture says, in figures: traffic, steps, and where waiting came from.

One pass over the records. Invariant: memory holds a few numbers a step and a
request, never a record; every share is of what was recorded, and says of what.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chunkwise.errors import UserMistake
from chunkwise.observed import Header, Request, Step
from chunkwise.readers.capture import Capture
from chunkwise.readers.gaps import CAUSES, GapFinder

Floats = npt.NDArray[np.float64]
KINDS = ("decode", "mixed", "prefill")
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
SLOWEST = 0.01  # which gaps are looked into where no target was given


@dataclass(frozen=True, slots=True)
class Kind:
    """Steps of one kind."""

    steps: int
    seconds: float  # of all of them
    quantiles: dict[str, float]  # of one
    prefill_tokens: float  # mean
    decodes: float  # mean


@dataclass(frozen=True, slots=True)
class Cause:
    """Gaps over the limit that have one cause."""

    gaps: int
    seconds_over: float
    worst: float


@dataclass(frozen=True, slots=True)
class Picture:
    """Usage: `Picture.of(run, itl=0.05).causes["preemption"].gaps`."""

    headers: tuple[Header, ...]
    seconds: float  # from the first step's end to the last's
    kinds: dict[str, Kind]
    step_ends: Floats  # [steps], of one engine after another
    step_seconds: Floats  # [steps]
    step_kinds: npt.NDArray[np.int8]  # [steps], places in KINDS
    mixed_share: float  # of the steps with prefill, those that carried decodes too
    busy: float  # share of the time in which a step ran
    kv_peak: float
    preemptions: int
    most_waiting: int
    requests: int
    reasons: dict[str, int]
    lengths: dict[str, dict[str, float]]  # prompt, output, chunks -> quantiles
    prompt_tokens: int
    cached_tokens: int
    chunked: int  # requests whose prompt took more than one step
    first_token: dict[str, dict[str, float]]  # whole, queue, prefill -> quantiles of seconds
    late: int | None  # first tokens over the target; None without one
    late_in_queue: int  # of those, spent most of the time waiting to be scheduled
    gaps: int
    gap_quantiles: dict[str, float]
    limit: float  # over which gaps are looked into
    limit_given: bool
    causes: dict[str, Cause]
    dropped: int

    @classmethod
    def of(
        cls, run: Sequence[Capture], itl: float | None = None, ttft: float | None = None
    ) -> "Picture":
        """Read a run's captures; targets that are not given are those of the server."""
        gathered = _Gathered()
        for capture in run:
            finder = GapFinder()
            for record in capture.records():
                gathered.take(record, finder)
        headers = tuple(capture.header for capture in run)
        if not gathered.steps:
            raise UserMistake("No step ended while this capture was written: let it run longer.")
        return gathered.picture(
            headers,
            itl if itl is not None else headers[0].itl,
            ttft if ttft is not None else headers[0].ttft,
            sum(capture.dropped for capture in run),
        )


class _Gathered:
    def __init__(self) -> None:
        self.ends, self.seconds, self.kind = array("d"), array("d"), array("b")
        self.prefill, self.decodes = array("q"), array("q")
        self.kv_peak, self.preemptions, self.most_waiting = 0.0, 0, 0
        self.prompt, self.output, self.chunks = array("q"), array("q"), array("q")
        self.cached = 0
        self.whole, self.queue = array("d"), array("d")
        self.reasons: dict[str, int] = {}
        self.gap, self.gap_requests, self.gap_cause = array("d"), array("q"), array("b")

    @property
    def steps(self) -> int:
        return len(self.ends)

    def take(self, record: Step | Request, finder: GapFinder) -> None:
        for gap in finder.take(record):
            self.gap.append(gap.seconds)
            self.gap_requests.append(gap.requests)
            self.gap_cause.append(CAUSES.index(gap.cause))
        if isinstance(record, Step):
            self.ends.append(record.end)
            self.seconds.append(record.seconds)
            self.kind.append(KINDS.index(record.kind))
            self.prefill.append(record.prefill_tokens)
            self.decodes.append(record.decodes)
            self.kv_peak = max(self.kv_peak, record.kv)
            self.preemptions += len(record.preempted)
            self.most_waiting = max(self.most_waiting, record.waiting)
            return
        self.reasons[record.reason] = self.reasons.get(record.reason, 0) + 1
        self.prompt.append(record.prompt)
        self.output.append(record.output)
        if record.scheduled is not None:
            self.chunks.append(record.chunks)
            self.cached += record.cached
        if record.first_token is not None and record.scheduled is not None:
            # Two clocks meet here, the server's front and the engine's: never below 0.
            self.whole.append(max(0.0, record.first_token - record.arrival))
            self.queue.append(max(0.0, record.scheduled - record.arrival))

    def picture(
        self, headers: tuple[Header, ...], itl: float | None, ttft: float | None, dropped: int
    ) -> Picture:
        seconds, ends = np.array(self.seconds), np.array(self.ends)
        kind = np.array(self.kind, dtype=np.int8)
        prefill, decodes = np.array(self.prefill), np.array(self.decodes)
        whole, queue = np.array(self.whole), np.array(self.queue)
        gap, weight = np.array(self.gap), np.array(self.gap_requests)
        span = float(ends.max() - (ends - seconds).min())
        quantiles = _quantiles(gap, weight)
        limit = itl if itl is not None else _weighted(gap, weight, 1 - SLOWEST)
        late = whole > ttft if ttft is not None else np.zeros(len(whole), dtype=np.bool_)
        with_prefill = int((kind > 0).sum())
        return Picture(
            headers=headers,
            seconds=span,
            kinds={
                name: Kind(
                    int(chosen.sum()),
                    float(seconds[chosen].sum()),
                    _quantiles(seconds[chosen]),
                    float(prefill[chosen].mean()),
                    float(decodes[chosen].mean()),
                )
                for index, name in enumerate(KINDS)
                if (chosen := kind == index).any()
            },
            step_ends=ends,
            step_seconds=seconds,
            step_kinds=kind,
            mixed_share=int((kind == 1).sum()) / with_prefill if with_prefill else 0.0,
            busy=min(1.0, float(seconds.sum()) / (span * len(headers))) if span else 0.0,
            kv_peak=self.kv_peak,
            preemptions=self.preemptions,
            most_waiting=self.most_waiting,
            requests=len(self.prompt),
            reasons=dict(sorted(self.reasons.items())),
            lengths={
                "prompt": _quantiles(np.array(self.prompt)),
                "output": _quantiles(np.array(self.output)),
                "chunks": _quantiles(np.array(self.chunks)),
            },
            prompt_tokens=int(sum(self.prompt)),
            cached_tokens=self.cached,
            chunked=int((np.array(self.chunks) > 1).sum()),
            first_token={
                "whole": _quantiles(whole),
                "queue": _quantiles(queue),
                "prefill": _quantiles(whole - queue),
            },
            late=None if ttft is None else int(late.sum()),
            late_in_queue=int((late & (queue > whole / 2)).sum()),
            gaps=int(weight.sum()),
            gap_quantiles=quantiles,
            limit=limit,
            limit_given=itl is not None,
            causes=self._causes(gap, weight, limit),
            dropped=dropped,
        )

    def _causes(self, gap: Floats, weight: npt.NDArray[np.int64], limit: float) -> dict[str, Cause]:
        cause = np.array(self.gap_cause)
        found = {}
        for index, name in enumerate(CAUSES):
            over = (cause == index) & (gap > limit)
            if over.any():
                beyond = float(((gap[over] - limit) * weight[over]).sum())
                found[name] = Cause(int(weight[over].sum()), beyond, float(gap[over].max()))
        return found


def _quantiles(
    values: npt.NDArray[np.float64] | npt.NDArray[np.int64],
    weight: npt.NDArray[np.int64] | None = None,
) -> dict[str, float]:
    if not len(values):
        return {}
    weight = np.ones(len(values), dtype=np.int64) if weight is None else weight
    return {name: _weighted(values, weight, q) for name, q in QUANTILES.items()}


def _weighted(
    values: npt.NDArray[np.float64] | npt.NDArray[np.int64],
    weight: npt.NDArray[np.int64],
    q: float,
) -> float:
    """Return the smallest value that a share `q` does not exceed."""
    if not len(values):
        return 0.0
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    rank = max(1, int(np.ceil(round(q * int(total[-1]), 6))))
    return float(values[order][np.searchsorted(total, rank)])
