"""What a comparison looks at: each metric is one number of one run.

Few on purpose, because all of them are corrected together and each one more
makes every claim harder. Invariant: the same metrics for every arm of a
comparison, chosen from the load and the promise, never from the results. A
metric that a run cannot answer (no token came, nobody had two) is NaN.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import Literal

import numpy as np

from chunkwise.lab.runs import Run
from chunkwise.measured import Floats
from chunkwise.slo import Slo

Unit = Literal["seconds", "tokens/s", "share"]
MOST_CLASSES = 4


@dataclass(frozen=True)
class Metric:
    """A number of a run. Usage: `metric.of(run)`."""

    key: str
    label: str
    of: Callable[[Run], float]
    unit: Unit = "seconds"
    higher_is_better: bool = False
    headline: bool = False  # what the stopping rule waits for

    @property
    def as_ratio(self) -> bool:
        """Arms are compared by ratio; shares, which may be 0, by difference."""
        return self.unit != "share"


def metrics(runs: Sequence[Run], slo: Slo) -> tuple[Metric, ...]:
    """Return what to compare for this load and this promise."""
    found = [
        Metric("ttft_p50", "median TTFT", _ttft(0.5), headline=True),
        Metric("ttft_p99", "P99 TTFT", _ttft(0.99), headline=True),
        *_ttft_of_parts(runs),
        Metric("gap_p99", "P99 gap", lambda run: _quantile(run.measured.gaps, 0.99), headline=True),
        Metric("worst_gap", "worst gap", lambda run: _quantile(run.measured.gaps, 1.0)),
        Metric("tpot_p50", "median time per output token", _tpot),
        Metric("end_to_end_mean", "mean end to end", _end_to_end),
        Metric("throughput", "throughput", _throughput, "tokens/s", True, headline=True),
    ]
    if np.isfinite(slo.itl):
        found.append(Metric("stalled", "time lost in stalls", partial(_stalled, slo.itl), "share"))
    if np.isfinite(slo.itl) or np.isfinite(slo.ttft):
        found.append(Metric("goodput", "goodput share", partial(_good, slo), "share", True, True))
    return tuple(found)


def _ttft_of_parts(runs: Sequence[Run]) -> list[Metric]:
    """Return the mean TTFT of each class; of short and long prompts if there are no classes."""
    classes = sorted({name for run in runs for name in run.measured.classes or ()})
    if 1 < len(classes) <= MOST_CLASSES:
        return [
            Metric(f"ttft_mean:{name}", f"mean TTFT of {name}", partial(_class_ttft, name))
            for name in classes
        ]
    return [
        Metric("ttft_mean_short", "mean TTFT of the shortest quarter", partial(_quarter_ttft, 0)),
        Metric("ttft_mean_long", "mean TTFT of the longest quarter", partial(_quarter_ttft, 3)),
    ]


def _ttft(q: float) -> Callable[[Run], float]:
    return lambda run: _quantile(run.measured.ttft, q)


def _class_ttft(name: str, run: Run) -> float:
    return _mean(run.measured.ttft[np.asarray(run.measured.classes or ()) == name])


def _quarter_ttft(number: int, run: Run) -> float:
    return _mean(run.measured.ttft[run.measured.prompt_quarter == number])


def _tpot(run: Run) -> float:
    return _quantile(run.measured.time_per_output_token, 0.5)


def _end_to_end(run: Run) -> float:
    return _mean(run.measured.end_to_end)


def _throughput(run: Run) -> float:
    return run.measured.output_tokens_per_second or nan


def _stalled(itl: float, run: Run) -> float:
    """Return the share of all streaming time by which gaps were over the target."""
    streaming = float(run.measured.gaps.sum())
    return float(run.measured.stall_seconds(itl).sum()) / streaming if streaming else nan


def _good(slo: Slo, run: Run) -> float:
    """Return the goodput share; a request that failed was asked for and is not good."""
    asked = len(run.measured) + sum(run.failed.values())
    return float(run.measured.good(slo).sum()) / asked if asked else nan


def _quantile(values: Floats, q: float) -> float:
    known = values[~np.isnan(values)]
    return float(np.quantile(known, q)) if len(known) else nan


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else nan
