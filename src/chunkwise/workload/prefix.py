"""How much of the prompts was seen before, with any cache and with a limited one.

A block counts as seen if an earlier request began with the same blocks up to
it. The curve over cache size is that of an LRU cache that holds prompts only,
looked up before a request's own blocks go in, which drops the end of a prompt
before its beginning, as vLLM does. Invariant: memory is bounded. Up to
`MOST_HELD` blocks everything is exact; past it a share of the blocks is
followed, chosen by id, and `sampled` and `error` say so.
"""

import math
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from chunkwise.workload.blocks import Counts, Ids, chained
from chunkwise.workload.stack import distances, first_touches, previous_touch

MOST_HELD = 48_000_000  # 8 bytes each, and three times that while they are sorted
MOST_IN_CURVE = 2**21
# Cache sizes of the curve, in tokens.
SIZES = tuple(2**power for power in range(10, 41))

Rows = npt.NDArray[np.int32]
Tokens = Annotated[int, Field(ge=0, le=2**62)]


class PrefixSummary(BaseModel):
    """Prefix reuse. Usage: `summary.seen_share`, `summary.share_with(cache_tokens)`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    block_size: Annotated[int, Field(ge=1, le=2**20)] | None  # None: several
    blocks: Tokens
    seen_blocks: Tokens
    tokens: Tokens  # of all prompts
    seen_tokens: Tokens
    curve: dict[Annotated[int, Field(ge=1, le=2**40)], Tokens]  # cache tokens -> tokens found
    sampled: Annotated[float, Field(gt=0, le=1)] = 1.0  # share of blocks followed
    curve_sampled: Annotated[float, Field(gt=0, le=1)] = 1.0
    error: Annotated[float, Field(ge=0, le=1)] = 0.0  # of the share of tokens, 95% confidence
    lower_bound: bool = False  # reuse across files is not counted

    @property
    def seen_share(self) -> float:
        """Share of prompt tokens that an unlimited cache would have held."""
        return self.seen_tokens / self.tokens if self.tokens else 0.0

    @property
    def seen_blocks_share(self) -> float:
        """Share of blocks seen before."""
        return self.seen_blocks / self.blocks if self.blocks else 0.0

    def share_with(self, cache_tokens: int) -> float:
        """Return the share found with a cache of that size (a size of the curve, or larger)."""
        found = [tokens for size, tokens in self.curve.items() if size <= cache_tokens]
        return max(found, default=0) / self.tokens if self.tokens else 0.0

    def merged(self, other: "PrefixSummary") -> "PrefixSummary":
        """Return both, one after another: a lower bound, as reuse across them is unknown."""
        sizes = sorted({*self.curve, *other.curve})
        return PrefixSummary(
            block_size=self.block_size if self.block_size == other.block_size else None,
            blocks=self.blocks + other.blocks,
            seen_blocks=self.seen_blocks + other.seen_blocks,
            tokens=self.tokens + other.tokens,
            seen_tokens=self.seen_tokens + other.seen_tokens,
            curve={size: self._found(size) + other._found(size) for size in sizes},
            sampled=min(self.sampled, other.sampled),
            curve_sampled=min(self.curve_sampled, other.curve_sampled),
            error=max(self.error, other.error),
            lower_bound=True,
        )

    def _found(self, size: int) -> int:
        return max((tokens for other, tokens in self.curve.items() if other <= size), default=0)


class PrefixCollector:
    """Folds block ids into a summary. Usage: `c.add(ids, counts, prompts); c.summary()`."""

    def __init__(self, block_size: int, most_held: int = MOST_HELD) -> None:
        self._size = block_size
        self._most_held = most_held
        self._limit = 2**64  # an id is followed if it is below; halved when memory runs out
        self._held = self._blocks = self._tokens = self._block_tokens = 0
        # Per batch: ids (last block of a request first), kept ids per request, and
        # by how much the request's last block falls short of a full one.
        self._parts: list[tuple[Ids, Rows, Rows]] = []

    def add(self, values: Ids, counts: Counts, prompts: Counts) -> None:
        """Take in a batch: the rows' block ids one after another, how many, prompt tokens."""
        ids, counts = chained(values, counts)
        some = counts > 0
        short = np.clip(counts[some] * self._size - prompts[some], 0, self._size)
        self._blocks += len(ids)
        self._tokens += int(prompts.sum())
        self._block_tokens += len(ids) * self._size - int(short.sum())
        self._keep(ids[_backwards(counts)], counts[some], short)
        while self._held > self._most_held:
            self._limit //= 2
            parts, self._parts, self._held = self._parts, [], 0
            for part in parts:
                self._keep(*part)

    def summary(self) -> PrefixSummary:
        """Return what was taken in so far."""
        rate = self._limit / 2**64
        ids, starts, short = self._joined()
        first = first_touches(ids)
        firsts = int(np.count_nonzero(first))
        first_tokens = firsts * self._size - int(short[first[starts]].sum())
        del first
        seen_tokens = max(0, self._block_tokens - round(first_tokens / rate))
        error = 0.0
        if rate < 1 and self._tokens:
            # Each different block is followed with probability `rate`.
            spread = 1.96 * math.sqrt(firsts * (1 - rate)) / rate * self._size
            error = min(1.0, spread / self._tokens)
        curve, curve_rate = self._curve(ids, starts, short, seen_tokens, rate)
        return PrefixSummary(
            block_size=self._size,
            blocks=self._blocks,
            seen_blocks=max(0, self._blocks - round(firsts / rate)),
            tokens=self._tokens,
            seen_tokens=seen_tokens,
            curve=curve,
            sampled=rate,
            curve_sampled=curve_rate,
            error=error,
        )

    def _keep(self, ids: Ids, counts: Counts | Rows, short: Counts | Rows) -> None:
        if self._limit < 2**64 and len(ids):
            kept = ids < np.uint64(self._limit)
            starts = np.cumsum(counts, dtype=np.int64) - counts
            # The last block comes first: without it, the row has no short block.
            short = short * kept[starts]
            counts = np.add.reduceat(kept, starts, dtype=np.int64)
            ids = ids[kept]
        some = counts > 0
        self._held += len(ids)
        # Rows that hold nothing are forgotten, so rows are bounded by ids.
        self._parts.append((ids, counts[some].astype(np.int32), short[some].astype(np.int32)))

    def _joined(self) -> tuple[Ids, Counts, Rows]:
        """Return the ids, where each request with any begins, and its last block's shortfall."""
        if len(self._parts) > 1:
            ids, counts, short = (np.concatenate(side) for side in zip(*self._parts, strict=True))
            self._parts = [(ids, counts, short)]
        if not self._parts:
            none = np.zeros(0, dtype=np.int64)
            return none.astype(np.uint64), none, none.astype(np.int32)
        ids, counts, short = self._parts[0]
        return ids, np.cumsum(counts, dtype=np.int64) - counts, short

    def _curve(
        self, ids: Ids, starts: Counts, short: Rows, seen: int, rate: float
    ) -> tuple[dict[int, int], float]:
        share = min(1.0, MOST_IN_CURVE / max(1, len(ids)))
        kept = np.flatnonzero(ids < np.uint64(int(self._limit * share))) if share < 1 else None
        rate *= share
        if kept is not None:
            ids = ids[kept]
            # Where each request begins among the kept ones, and whether its last
            # block, which comes first, is one of them.
            begins = np.searchsorted(kept, starts)
            there = np.append(kept, -1)[begins] == starts
            some = np.diff(begins, append=len(kept)) > 0
            starts, short = begins[some], (short * there)[some]
        weight = np.full(len(ids), self._size, dtype=np.int64)
        weight[starts] -= short
        reuses, distance = distances(previous_touch(ids))
        # A lookup comes before the request's own blocks go in: do not count those.
        start = starts[np.searchsorted(starts, reuses, side="right") - 1] if len(reuses) else reuses
        distance = distance - (reuses - start)
        curve: dict[int, int] = {}
        for size in SIZES:
            lost = round(int(weight[reuses[distance >= size / self._size * rate]].sum()) / rate)
            curve[size] = max(0, seen - lost)
            if not lost:
                break
        return curve, rate


def _backwards(counts: Counts) -> Counts:
    # Indices that turn each row's ids around, the rows staying in order.
    ends = np.cumsum(counts)
    starts = ends - counts
    turned: Counts = np.repeat(starts + ends - 1, counts)
    return turned - np.arange(len(turned))
