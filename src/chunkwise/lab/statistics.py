"""What a comparison may claim: paired by round, against a noise floor of its own.

The unit is the round, because requests within a run share a queue and are not
independent: every figure is one number a run, and an arm's is divided by the
baseline's of the same round. Invariant: a difference is claimed only if its
p-value, corrected for all metrics of all arms together (Holm), is under 5%, and
if its whole interval is beyond what the baseline and its twin, two servers of the
same settings, may differ by. Everything else is "alike" or "too noisy to tell".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import inf, nan
from typing import Any, Literal

import numpy as np

from chunkwise.lab.metrics import Metric, metrics
from chunkwise.lab.runs import Run
from chunkwise.measured import Floats
from chunkwise.slo import Slo

CONFIDENCE = 0.95
RESAMPLES = 1_999  # where that leaves a tail thin, at five rounds, Student's t is farther
# More failed requests than this, in an arm or in its baseline, and the times of
# those that were answered say nothing about the settings.
MOST_FAILED = 0.01
# A run's client lagged if its P99 delay in sending exceeds both of these.
LAG_SECONDS = 0.010
LAG_OF_TTFT = 0.10

Verdict = Literal["better", "worse", "alike", "unclear", "failed"]


@dataclass(frozen=True)
class Effect:
    """One metric of one arm against the baseline, over the rounds that have both.

    `estimate`, `low`, `high` and `floor` are log ratios, or differences of shares.
    """

    arm: str
    metric: Metric
    rounds: int
    value: float  # the arm's, over the rounds (geometric mean; of shares the mean)
    baseline_value: float
    estimate: float
    low: float
    high: float
    p: float
    corrected_p: float = 1.0
    floor: float = inf
    verdict: Verdict = "unclear"

    @property
    def half_width(self) -> float:
        """Half of the interval's width; infinite with too few rounds."""
        return (self.high - self.low) / 2

    @property
    def shown(self) -> tuple[float, float, float]:
        """The estimate and the interval's ends as ratios, or as differences of shares."""
        ends = np.array([self.estimate, self.low, self.high])
        middle, low, high = (np.exp(ends) if self.metric.as_ratio else ends).tolist()
        return middle, low, high


@dataclass(frozen=True)
class Condition:
    """How the runs of one arm went: what failed, and how late the client sent."""

    arm: str
    runs: int
    requests: int
    failed: int
    lag_p99: float  # the worst run's
    lagged: tuple[int, ...]  # rounds in which the client lagged

    @property
    def failed_share(self) -> float:
        """Of the requests that were sent."""
        return self.failed / self.requests if self.requests else 0.0


@dataclass(frozen=True)
class Comparison:
    """Everything that follows from a file of runs. Usage: `compare(asked, runs)`."""

    asked: Mapping[str, Any]
    runs: tuple[Run, ...]
    metrics: tuple[Metric, ...]
    effects: tuple[Effect, ...]  # every arm but the baseline and its twin, every metric
    twin: tuple[Effect, ...]  # the baseline's twin: the noise floor
    conditions: tuple[Condition, ...]

    @property
    def baseline(self) -> str:
        """The arm that the others are divided by."""
        return str(self.asked["baseline"])

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that are compared with the baseline, in the order they were asked for."""
        return tuple(dict.fromkeys(effect.arm for effect in self.effects))

    @cached_property
    def rounds(self) -> int:
        """Rounds in which every arm was measured."""
        seen = [{run.round for run in self.runs if run.arm == arm} for arm in self._everyone]
        return len(set.intersection(*seen)) if seen else 0

    @property
    def narrow_enough(self) -> bool:
        """Whether every headline interval is as narrow as the rule asked for."""
        precision = float(self.asked["rule"]["precision"])
        widths = [effect.half_width for effect in self.effects if effect.metric.headline]
        return bool(widths) and max(widths) <= precision

    def of(self, arm: str) -> tuple[Effect, ...]:
        """Return the effects of one arm."""
        return tuple(effect for effect in self.effects if effect.arm == arm)

    @property
    def _everyone(self) -> tuple[str, ...]:
        return (self.baseline, *self.arms, *dict.fromkeys(effect.arm for effect in self.twin))


def compare(asked: Mapping[str, Any], runs: Sequence[Run]) -> Comparison:
    """Compare every arm with the baseline, by the rounds that have both.

    Usage: `compare(*chunkwise.lab.runs.read(file))`
    """
    promise = asked.get("promise") or {}
    slo = Slo(ttft=promise.get("ttft") or inf, itl=promise.get("itl") or inf)
    chosen = metrics(runs, slo)
    baseline, twin = str(asked["baseline"]), str(asked["twin"])
    everyone = tuple(dict.fromkeys((*asked["arms"], twin)))
    values = {arm: _values(arm, chosen, runs) for arm in everyone}
    effects = {
        arm: [_effect(arm, metric, values[arm], values[baseline]) for metric in chosen]
        for arm in everyone
        if arm != baseline
    }
    conditions = tuple(_condition(arm, runs) for arm in everyone)
    itself = _corrected(effects.pop(twin))
    judged = _judged(tuple(chain(*effects.values())), itself, conditions, asked)
    return Comparison(asked, tuple(runs), chosen, judged, itself, conditions)


def lagged(run: Run) -> bool:
    """Tell whether the client sent this run's requests too late to trust the load."""
    ttft = run.measured.ttft
    usual = float(np.nanmedian(ttft)) if np.isfinite(ttft).any() else 0.0
    return _lag(run) > max(LAG_SECONDS, LAG_OF_TTFT * usual)


# --- one metric of one arm ---

_Values = dict[tuple[str, int], float]  # (metric's key, round): the run's number


def _values(arm: str, chosen: Sequence[Metric], runs: Sequence[Run]) -> _Values:
    own = [run for run in runs if run.arm == arm]
    return {(metric.key, run.round): metric.of(run) for run in own for metric in chosen}


def _effect(arm: str, metric: Metric, ours: _Values, theirs: _Values) -> Effect:
    rounds = sorted(number for key, number in ours.keys() & theirs.keys() if key == metric.key)
    pairs = np.array([[ours[metric.key, n], theirs[metric.key, n]] for n in rounds]).reshape(-1, 2)
    if metric.as_ratio:
        pairs = np.log(np.where(pairs > 0, pairs, nan))
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    if not len(pairs):
        return Effect(arm, metric, 0, nan, nan, nan, -inf, inf, 1.0)
    mean, baseline_mean = pairs.mean(axis=0).tolist()
    if metric.as_ratio:
        value, baseline_value = float(np.exp(mean)), float(np.exp(baseline_mean))
    else:
        value, baseline_value = mean, baseline_mean
    differences = pairs[:, 0] - pairs[:, 1]
    low, high = interval(differences)
    return Effect(
        arm,
        metric,
        len(pairs),
        value,
        baseline_value,
        float(differences.mean()),
        low,
        high,
        p_value(differences),
    )


def interval(differences: Floats) -> tuple[float, float]:
    """Return a 95% interval for the mean of a few paired differences.

    Each end is the farther one of two: the bootstrap over rounds, its percentiles
    moved outwards for the number of rounds, follows a skewed sample; Student's t
    keeps its promise where five rounds are too few to resample. Alone, BCa or plain
    percentiles hold 75 to 90% of the time here (`benchmarks/compare_power.py`).
    """
    from scipy import stats

    count, mean = len(differences), float(differences.mean())
    if count < 2:
        return -inf, inf
    if np.ptp(differences) == 0:
        return mean, mean
    t = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))
    half = t * float(differences.std(ddof=1)) / count**0.5
    # Resampling shrinks the variance by (n-1)/n and knows nothing of t's longer tails.
    outwards = float(stats.norm.cdf(t * (count / (count - 1)) ** 0.5))
    ends = stats.bootstrap(
        (differences,),
        np.mean,
        confidence_level=2 * outwards - 1,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),  # the same runs, the same interval
    ).confidence_interval
    return min(mean - half, float(ends.low)), max(mean + half, float(ends.high))


def p_value(differences: Floats) -> float:
    """Return how likely so large a mean is without a difference: Student's t, paired.

    A permutation test cannot get under 2 / 2**rounds, which no correction survives
    at ten rounds.
    """
    from scipy import stats

    if np.ptp(differences) == 0:
        return 1.0 if len(differences) < 2 or differences[0] == 0 else 0.0
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm's step-down)."""
    order = np.argsort(p, kind="stable")
    steps = np.asarray(p, dtype=np.float64)[order] * np.arange(len(p), 0, -1)
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return [float(one) for one in corrected]


# --- what may be said ---


def _corrected(effects: Sequence[Effect]) -> tuple[Effect, ...]:
    corrected = holm([effect.p for effect in effects])
    return tuple(replace(e, corrected_p=p) for e, p in zip(effects, corrected, strict=True))


def _judged(
    effects: Sequence[Effect],
    twin: Sequence[Effect],
    conditions: Sequence[Condition],
    asked: Mapping[str, Any],
) -> tuple[Effect, ...]:
    # Two servers of the same settings may differ by as much as the far end of
    # the twin's interval.
    floors = {effect.metric.key: max(-effect.low, effect.high) for effect in twin}
    failing = {one.arm for one in conditions if one.failed_share > MOST_FAILED}
    judged = []
    for found in _corrected(effects):
        effect = replace(found, floor=floors[found.metric.key])
        # Goodput counts those that failed; every other figure leaves them out.
        broken = failing & {effect.arm, asked["baseline"]} and effect.metric.key != "goodput"
        verdict = "failed" if broken else _verdict(effect, asked["rule"])
        judged.append(replace(effect, verdict=verdict))
    return tuple(judged)


def _verdict(effect: Effect, rule: Mapping[str, Any]) -> Verdict:
    if effect.rounds < max(2, rule["least_rounds"]):
        return "unclear"
    nearest, farthest = max(effect.low, -effect.high), max(-effect.low, effect.high)
    # The whole interval, not only its middle: two servers of the same settings may
    # differ for good, and then no number of rounds makes that a small difference.
    if effect.corrected_p < 1 - CONFIDENCE and nearest > effect.floor:
        return "better" if (effect.estimate > 0) == effect.metric.higher_is_better else "worse"
    # "No difference" is a claim too: all that the interval allows is too small to matter.
    return "alike" if farthest <= rule["precision"] else "unclear"


# --- how the runs went ---


def _condition(arm: str, runs: Sequence[Run]) -> Condition:
    own = [run for run in runs if run.arm == arm]
    failed = sum(sum(run.failed.values()) for run in own)
    return Condition(
        arm,
        len(own),
        sum(len(run.measured) for run in own) + failed,
        failed,
        max(map(_lag, own), default=0.0),
        tuple(run.round for run in own if lagged(run)),
    )


def _lag(run: Run) -> float:
    return float(np.quantile(run.lag, 0.99)) if len(run.lag) else 0.0
