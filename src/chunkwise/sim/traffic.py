"""Requests to come, as columns: what the simulator takes in.

Invariant: rows are in order of arrival and numbered from 0; a request is never
more than its row, until it is handed to the scheduler.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from chunkwise.engine.bare_prefix import Prefix
from chunkwise.errors import UserMistake
from chunkwise.measured import Floats, Ints

if TYPE_CHECKING:
    from chunkwise.workload.workload import Workload


@dataclass(frozen=True)
class Shared:
    """Block ids of all prompts, one after another."""

    ids: npt.NDArray[np.uint64]
    ends: Ints  # [requests], where each prompt's ids end
    block: int  # tokens in a block

    def of(self, number: int) -> Prefix | None:
        """Return the blocks of one request."""
        start = int(self.ends[number - 1]) if number else 0
        ids = self.ids[start : int(self.ends[number])]
        return Prefix(ids, self.block) if len(ids) else None

    def only(self, chosen: Ints) -> "Shared":
        """Return those of the chosen requests, in that order."""
        sizes = np.diff(self.ends, prepend=0)
        starts = (self.ends - sizes)[chosen]
        kept = sizes[chosen]
        ends = np.cumsum(kept)
        # For each kept id: its request's start, and how far into the request it lies.
        within = np.arange(int(kept.sum())) - np.repeat(ends - kept, kept)
        return Shared(self.ids[np.repeat(starts, kept) + within], ends, self.block)


@dataclass(frozen=True)
class Traffic:
    """Usage: `Traffic.of(workload, limit=1000).at_rate(4.0)`."""

    prompt: Ints  # [requests], tokens
    output: Ints  # [requests], tokens, at least 1
    arrival: Floats | None = None  # [requests], seconds from 0; None: nobody said when
    shared: Shared | None = None
    classes: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.prompt)

    @classmethod
    def of(cls, workload: "Workload", limit: int | None = None) -> "Traffic":
        """Read a workload's first requests; without output lengths it cannot be simulated."""
        import polars as pl

        if "output_tokens" not in workload.columns:
            raise UserMistake(
                f"{workload.name} does not say how many tokens each request generates, which "
                f"decides a simulation: add a column output_tokens."
            )
        parts, rows = [], 0
        for batch in workload.batches():
            parts.append(batch if limit is None else batch.head(limit - rows))
            rows += len(parts[-1])
            if limit is not None and rows >= limit:
                break
        frame = pl.concat(parts) if parts else pl.DataFrame()
        if not len(frame):
            raise UserMistake(f"{workload.name} has no requests: there is nothing to simulate.")
        if missing := frame["output_tokens"].null_count():
            raise UserMistake(
                f"{workload.name} lacks the output length of {missing:,} requests: fill or remove "
                f"those rows."
            )
        arrival = frame["arrival_s"].to_numpy() if "arrival_s" in frame.columns else None
        if arrival is not None and (np.diff(arrival) < 0).any():
            raise UserMistake(f"{workload.name} is not in order of arrival: sort it first.")
        shared = None
        if "prefix_blocks" in frame.columns:
            lists = frame["prefix_blocks"].fill_null([])
            ids = lists.explode(empty_as_null=False, keep_nulls=False)
            ends = np.cumsum(lists.list.len().to_numpy().astype(np.int64))
            shared = Shared(ids.to_numpy(), ends, workload.block_size)
        classes = tuple(frame["request_class"]) if "request_class" in frame.columns else None
        return cls(
            frame["prompt_tokens"].to_numpy().clip(1),
            frame["output_tokens"].to_numpy().clip(1),
            None if arrival is None else arrival - arrival[0],
            shared,
            classes,
        )

    @classmethod
    def made(
        cls, prompt: int, output: int, requests: int, jitter: float = 0.0, seed: int = 0
    ) -> "Traffic":
        """Make what load generators send: lengths uniform in (1 - jitter, 1] of nominal."""
        if requests < 1:
            raise UserMistake("A load needs at least one request.")
        rng = np.random.default_rng(seed)

        def lengths(nominal: int) -> Ints:
            least = max(1, int(nominal * (1 - jitter)))
            return rng.integers(least, nominal, requests, endpoint=True)

        return cls(lengths(prompt), lengths(output))

    def at_rate(self, rate: float, seed: int = 0) -> "Traffic":
        """Return it at this many requests a second: its own pattern, or at random if it has none.

        Arrivals all at once have no pattern either.
        """
        if self.arrival is not None and self.arrival[-1] > 0:
            return self.scaled(rate * float(self.arrival[-1]) / max(1, len(self) - 1))
        gaps = np.random.default_rng(seed).exponential(1 / rate, len(self))
        return replace(self, arrival=np.cumsum(gaps) - gaps[0])

    def scaled(self, factor: float) -> "Traffic":
        """Return it that many times as fast."""
        if self.arrival is None:
            raise UserMistake("This traffic has no arrival times to scale: give a rate.")
        return replace(self, arrival=self.arrival / factor)

    def only(self, chosen: Ints) -> "Traffic":
        """Return the chosen requests, in that order."""
        return Traffic(
            self.prompt[chosen],
            self.output[chosen],
            None if self.arrival is None else self.arrival[chosen],
            None if self.shared is None else self.shared.only(chosen),
            None if self.classes is None else tuple(self.classes[i] for i in chosen.tolist()),
        )
