"""What happened to requests, in token times, and what follows from them.

One type for simulated, replayed and observed runs, so that all of them are
judged by the same arithmetic. A *gap* is the time between two tokens of one
request; the first token's wait is its TTFT and not a gap; a *stall* is a gap
over the target. Invariant: columns only, one pass of numpy for each question,
so that an hour of traffic costs no more than its numbers. A request that never
produced a token is kept: it has no TTFT (NaN), and it is never good.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from chunkwise.errors import UserMistake
from chunkwise.slo import Slo

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

GAP_QUANTILE = 0.99  # of one request's gaps: what the inter-token target is held against


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of a sample and where the true one may lie; infinite where that is open."""

    value: float
    low: float
    high: float


def quantile(values: Floats, q: float, confidence: float = 0.95) -> Quantile:
    """Return a quantile with its interval. Usage: `quantile(run.ttft, 0.99)`.

    The interval's ends are order statistics (binomial), so nothing is assumed of the
    distribution, and the P99 of fewer than some 370 values has no upper end. It is
    for independent values: requests of one run share a queue, and theirs is wider
    than this says. To compare settings, repeat runs and use `chunkwise compare`.
    """
    from scipy.stats import quantile_test

    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return Quantile(np.nan, -np.inf, np.inf)
    ends = quantile_test(known, p=q).confidence_interval(confidence)
    return Quantile(
        float(np.quantile(known, q)),
        -np.inf if np.isnan(ends.low) else float(ends.low),
        np.inf if np.isnan(ends.high) else float(ends.high),
    )


@dataclass(frozen=True)
class Measured:
    """Requests as columns. Usage: `Measured.of(arrivals, tokens).goodput_share(slo)`."""

    arrival: Floats  # [requests], seconds on any one clock
    prompt_tokens: Ints  # [requests]
    token_counts: Ints  # [requests], tokens that came
    token_times: Floats  # [tokens], request after request, on the same clock
    classes: tuple[str, ...] | None = None  # [requests]

    @classmethod
    def of(
        cls,
        arrival: Sequence[float],
        tokens: Sequence[Sequence[float]],
        prompt_tokens: Sequence[int] | None = None,
        classes: Sequence[str] | None = None,
    ) -> "Measured":
        """Build from one sequence of token times a request."""
        times = [np.asarray(one, dtype=np.float64) for one in tokens]
        return cls(
            np.asarray(arrival, dtype=np.float64),
            np.asarray(prompt_tokens or [0] * len(times), dtype=np.int64),
            np.asarray([len(one) for one in times], dtype=np.int64),
            np.concatenate(times) if times else np.zeros(0),
            None if classes is None else tuple(classes),
        )

    def __post_init__(self) -> None:
        requests = len(self.arrival)
        named = requests if self.classes is None else len(self.classes)
        if not requests == len(self.prompt_tokens) == len(self.token_counts) == named:
            raise UserMistake("A run's columns differ in length: each needs one entry a request.")
        if int(self.token_counts.sum()) != len(self.token_times):
            raise UserMistake("A run's token times do not add up to its token counts.")
        if not (np.isfinite(self.arrival).all() and np.isfinite(self.token_times).all()):
            raise UserMistake("A run's times hold something that is not a number.")
        if (self.gaps < 0).any() or (self.ttft < 0).any():
            raise UserMistake("A run's times go backwards within a request.")

    def __len__(self) -> int:
        return len(self.arrival)

    # --- per request ---

    @cached_property
    def ttft(self) -> Floats:
        """Seconds from arrival to the first token; NaN where none came."""
        found = np.full(len(self), np.nan)
        some = self.token_counts > 0
        found[some] = self.token_times[self._starts[some]] - self.arrival[some]
        return found

    @cached_property
    def end_to_end(self) -> Floats:
        """Seconds from arrival to the last token; NaN where none came."""
        found = np.full(len(self), np.nan)
        some = self.token_counts > 0
        last = self._starts + self.token_counts - 1
        found[some] = self.token_times[last[some]] - self.arrival[some]
        return found

    @property
    def time_per_output_token(self) -> Floats:
        """Mean gap of each request; NaN where fewer than two tokens came."""
        mean = np.full(len(self), np.nan)
        some = self.token_counts > 1
        mean[some] = (self.end_to_end - self.ttft)[some] / (self.token_counts[some] - 1)
        return mean

    @property
    def worst_gap(self) -> Floats:
        """The longest gap of each request; 0 where there is none."""
        return self.gap_quantile(1.0)

    def gap_quantile(self, q: float) -> Floats:
        """Return the smallest gap that a share `q` of each request's gaps do not exceed."""
        gaps = np.maximum(self.token_counts - 1, 0)
        some = gaps > 0
        ends = np.cumsum(gaps)
        order = np.lexsort((self.gaps, self._owner))
        rank = np.maximum(1, np.ceil(np.round(q * gaps, 6)).astype(np.int64))
        found = np.zeros(len(self))
        found[some] = self.gaps[order][(ends - gaps + rank - 1)[some]]
        return found

    def stall_seconds(self, itl: float) -> Floats:
        """Return by how much each request's gaps exceeded the target, added up."""
        over = np.maximum(self.gaps - itl, 0.0)
        return np.bincount(self._owner, weights=over, minlength=len(self)).astype(np.float64)

    def good(self, slo: Slo) -> Bools:
        """Tell who got what was promised: the first token in time, and its P99 gap."""
        # NaN compares as False: who never got a token was not served well.
        return (self.ttft <= slo.ttft) & (self.gap_quantile(GAP_QUANTILE) <= slo.itl)

    @cached_property
    def prompt_quarter(self) -> Ints:
        """In which quarter of the prompts each one's length is: 0 shortest, 3 longest."""
        rank = np.argsort(np.argsort(self.prompt_tokens, kind="stable"), kind="stable")
        return rank * 4 // max(1, len(self))

    # --- the whole run ---

    @cached_property
    def gaps(self) -> Floats:
        """All gaps of all requests, request after request."""
        return np.diff(self.token_times)[self._inside]

    @property
    def gap_ends(self) -> Floats:
        """When each of `gaps` ended."""
        return self.token_times[1:][self._inside]

    @property
    def seconds(self) -> float:
        """From the first arrival to the last token."""
        if not len(self.token_times):
            return 0.0
        return float(self.token_times.max() - self.arrival.min())

    @property
    def output_tokens_per_second(self) -> float:
        """Tokens that came, over the whole run."""
        return len(self.token_times) / self.seconds if self.seconds else 0.0

    def goodput_share(self, slo: Slo) -> float:
        """Return the share of requests that got what was promised."""
        return float(self.good(slo).mean()) if len(self) else 0.0

    # --- parts of it ---

    def only(self, chosen: Bools) -> "Measured":
        """Return the chosen requests."""
        classes = self.classes
        if classes is not None:
            classes = tuple(name for name, take in zip(classes, chosen, strict=True) if take)
        return Measured(
            self.arrival[chosen],
            self.prompt_tokens[chosen],
            self.token_counts[chosen],
            self.token_times[np.repeat(chosen, self.token_counts)],
            classes,
        )

    def by_class(self) -> Mapping[str, "Measured"]:
        """Return the requests of each class; without classes, none."""
        if self.classes is None:
            return {}
        names = np.asarray(self.classes)
        return {name: self.only(names == name) for name in sorted(set(self.classes))}

    def by_prompt_quartile(self) -> tuple["Measured", ...]:
        """Return the shortest quarter of the prompts to the longest, ties kept in order."""
        return tuple(self.only(self.prompt_quarter == number) for number in range(4))

    # --- where each request's tokens are ---

    @cached_property
    def _starts(self) -> Ints:
        return np.cumsum(self.token_counts) - self.token_counts

    @cached_property
    def _inside(self) -> Bools:
        """Marks the differences of neighbouring times that lie within one request."""
        inside = np.ones(max(0, len(self.token_times) - 1), dtype=np.bool_)
        later = self._starts[(self.token_counts > 0) & (self._starts > 0)]
        inside[later - 1] = False
        return inside

    @cached_property
    def _owner(self) -> Ints:
        return np.repeat(np.arange(len(self)), np.maximum(self.token_counts - 1, 0))
