"""Made-up traffic with the statistics of real traffic, and mixtures of it.

Kept: the distributions of prompt and output lengths, the share of tokens seen
before and roughly how far back they lie, the rate and the variation of gaps.
Not kept: how a prompt's length goes with its output's, the hour of the day, and
what a profile does not hold. Invariant: the same profile, number and seed make
the same requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chunkwise.errors import UserMistake
from chunkwise.workload.layouts import DEFAULT_BLOCK
from chunkwise.workload.prefix import PrefixSummary
from chunkwise.workload.profile import DatasetProfile, Profile
from chunkwise.workload.workload import OUTPUT_KINDS, Workload

MOST_REQUESTS = 10_000_000
NEIGHBOURS = 8
Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class Ingredient:
    """A part of a mixture. Usage: `Ingredient(profile, share=0.9, name="interactive")`."""

    profile: Profile
    share: float
    name: str


def synthesize(profile: Profile, n: int, seed: int = 0) -> Workload:
    """Make `n` requests like those of a profile. Usage: `synthesize(profile, 10_000, seed=1)`."""
    _refuse_number(n)
    whole = profile.overall()
    frame = _made(whole, n, np.random.default_rng(seed), rate=None, first_block=0)
    block_size = _block_size(whole)
    return Workload.of(frame, f"made from {whole.name}", block_size)


def mix(parts: Sequence[Ingredient], n: int, seed: int = 0, rate: float | None = None) -> Workload:
    """Make a mixture, each part a class. Usage: `mix([Ingredient(a, 0.9, "chat"), …], 10_000)`.

    `rate` is of all requests together; without it, the parts' own rates in sum.
    """
    _refuse_number(n)
    total = sum(part.share for part in parts)
    if not parts or total <= 0 or any(part.share < 0 for part in parts):
        raise UserMistake("A mixture needs at least one part with a share above 0.")
    wholes = [part.profile.overall() for part in parts]
    if len({_block_size(whole) for whole in wholes if whole.prefix is not None}) > 1:
        raise UserMistake("The parts of a mixture must have blocks of one size.")
    if rate is None:
        rate = sum(whole.arrivals.rate or 0.0 for whole in wholes if whole.arrivals is not None)
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n, [part.share / total for part in parts])
    frames, first_block = [], 0
    for part, whole, count in zip(parts, wholes, counts.tolist(), strict=True):
        own = rate * count / n if rate else None
        frame = _made(whole, count, rng, own, first_block)
        if "prefix_blocks" in frame.columns:
            first_block = frame.select(pl.col("prefix_blocks").list.max().max() + 1).item() or 0
        frames.append(frame.with_columns(request_class=pl.lit(part.name)))
    mixed = pl.concat(frames, how="diagonal")
    if "arrival_s" in mixed.columns and not mixed["arrival_s"].null_count():
        mixed = mixed.sort("arrival_s", maintain_order=True)
    else:
        mixed = mixed.drop("arrival_s", strict=False).sample(fraction=1, shuffle=True, seed=seed)
    if "prefix_blocks" in mixed.columns:
        mixed = mixed.with_columns(pl.col("prefix_blocks").fill_null([]))
    block_size = next((_block_size(w) for w in wholes if w.prefix is not None), DEFAULT_BLOCK)
    return Workload.of(mixed, " and ".join(part.name for part in parts), block_size)


def _made(
    whole: DatasetProfile, n: int, rng: Rng, rate: float | None, first_block: int
) -> pl.DataFrame:
    prompts = whole.prompt.sample(_spread(rng, n))
    columns: dict[str, object] = {}
    own = None if whole.arrivals is None else whole.arrivals.rate
    if rate or own:
        variation = (whole.arrivals.variation if whole.arrivals is not None else None) or 1.0
        columns["arrival_s"] = _arrivals(rng, n, rate or own or 1.0, variation)
    columns["prompt_tokens"] = prompts
    if whole.output.count:
        columns["output_tokens"] = whole.output.sample(_spread(rng, n))
        kind = max(whole.output_kinds, key=lambda name: whole.output_kinds[name], default="known")
        columns["output_kind"] = pl.Series([kind] * n, dtype=pl.Enum(OUTPUT_KINDS))
    if whole.prefix is not None:
        blocks = _blocks(whole.prefix, prompts, _block_size(whole), rng, first_block)
        columns["prefix_blocks"] = pl.Series(blocks, dtype=pl.List(pl.UInt64))
    return pl.DataFrame(columns)


def _spread(rng: Rng, n: int) -> npt.NDArray[np.float64]:
    # One number in each n-th of [0, 1), in random order: quantiles of the sample
    # then follow the distribution much more closely than with free draws.
    return rng.permutation((np.arange(n) + rng.random(n)) / max(1, n))


def _arrivals(rng: Rng, n: int, rate: float, variation: float) -> npt.NDArray[np.float64]:
    # Gamma gaps have any variation: 1 is Poisson, above it come bursts.
    shape = 1 / max(variation, 1e-2) ** 2
    gaps = rng.gamma(shape, 1 / shape, n)
    gaps /= gaps.mean() * rate if n and gaps.mean() > 0 else 1.0
    return np.cumsum(gaps) - (gaps[0] if n else 0.0)


def _blocks(
    prefix: PrefixSummary, prompts: npt.NDArray[np.int64], size: int, rng: Rng, first: int
) -> list[list[int]]:
    # A request begins like an earlier one whenever reuse lags behind its share.
    # How far back that one lies is drawn from the curve: what a cache of C tokens
    # finds was asked for within the last C tokens that were new.
    back = _steps_back(prefix, float(prompts.mean()) if len(prompts) else 1.0, rng, len(prompts))
    rows: list[list[int]] = []
    fresh, tokens, seen = first, 0, 0
    for index, prompt in enumerate(prompts.tolist()):
        count = prompt // size
        tokens += prompt
        shared: list[int] = []
        if index and seen < prefix.seen_share * tokens:
            # Of a few neighbours there, the longest: a short one has little to share.
            start = max(0, index - back[index] - NEIGHBOURS)
            shared = max(rows[start : max(1, index - back[index] + 1)], key=len)[:count]
        seen += len(shared) * size
        rows.append([*shared, *range(fresh, fresh + count - len(shared))])
        fresh += count - len(shared)
    return rows


def _steps_back(prefix: PrefixSummary, mean: float, rng: Rng, n: int) -> list[int]:
    sizes = np.array(sorted(prefix.curve), dtype=np.float64)
    found = np.array([prefix.curve[int(size)] for size in sizes], dtype=np.float64)
    if not len(sizes) or found[-1] <= 0:
        return [1] * n
    new = max(1.0, mean * (1 - prefix.seen_share))
    drawn = sizes[np.minimum(np.searchsorted(found / found[-1], rng.random(n)), len(sizes) - 1)]
    # Anywhere between this size of the curve and the one below it.
    steps = drawn * (0.5 + 0.5 * rng.random(n)) / new
    return [max(1, int(step)) for step in steps]


def _block_size(whole: DatasetProfile) -> int:
    if whole.prefix is None:
        return DEFAULT_BLOCK
    if whole.prefix.block_size is None:
        raise UserMistake("These datasets have blocks of several sizes: make each its own part.")
    return whole.prefix.block_size


def _refuse_number(n: int) -> None:
    if not 1 <= n <= MOST_REQUESTS:
        raise UserMistake(f"Between 1 and {MOST_REQUESTS:,} requests can be made, not {n:,}.")
