from pathlib import Path

import numpy as np
import polars as pl
import pytest

from chunkwise.errors import UserMistake
from chunkwise.workload.profile import Profile, profile_of
from chunkwise.workload.readers import open_file
from chunkwise.workload.synthesis import Ingredient, mix, synthesize
from chunkwise.workload.text_workload import Reading
from chunkwise.workload.workload import Workload


def profiled(path: Path) -> Profile:
    return Profile(datasets=(profile_of(open_file(path, path.name, Reading())),))


def of_lengths(low: int, high: int, n: int = 500) -> Profile:
    lengths = np.random.default_rng(0).integers(low, high, n)
    frame = pl.DataFrame({"arrival_s": np.arange(n) * 0.5, "prompt_tokens": lengths})
    return Profile(datasets=(profile_of(Workload.of(frame, "lengths")),))


@pytest.mark.parametrize("name", ["mooncake_conversation.jsonl", "mooncake_synthetic.jsonl"])
def test_statistics_are_kept(traces: Path, name: str) -> None:
    real = profiled(traces / name)
    made = profile_of(synthesize(real, 8000, seed=3))
    whole = real.overall()
    for q in (0.5, 0.9, 0.95, 0.99):
        assert made.prompt.quantile(q) == pytest.approx(whole.prompt.quantile(q), rel=0.03)
        assert made.output.quantile(q) == pytest.approx(whole.output.quantile(q), rel=0.03)
    assert made.prefix.seen_share == pytest.approx(whole.prefix.seen_share, abs=0.02)
    assert made.arrivals.rate == pytest.approx(whole.arrivals.rate, rel=0.01)
    assert made.arrivals.variation == pytest.approx(whole.arrivals.variation, rel=0.15)


def test_reuse_lies_about_as_far_back(traces: Path) -> None:
    real = profiled(traces / "mooncake_conversation.jsonl")
    made = profile_of(synthesize(real, 12_031, seed=3)).prefix
    for size in (2**21, 2**23, 2**25):
        kept = made.share_with(size) - real.overall().prefix.share_with(size)
        assert abs(kept) < 0.12, size


def test_the_same_seed_makes_the_same_requests(data: Path) -> None:
    real = profiled(data / "mooncake_120.jsonl")
    one, two, other = (synthesize(real, 50, seed).frame().collect() for seed in (1, 1, 2))
    assert one.equals(two)
    assert not one.equals(other)


def test_a_mixture_keeps_its_parts() -> None:
    short, long = of_lengths(20, 200), of_lengths(20_000, 60_000)
    parts = [Ingredient(short, 0.9, "interactive"), Ingredient(long, 0.1, "documents")]
    made = mix(parts, 20_000, seed=1, rate=40)
    found = profile_of(made)
    assert found.classes["documents"] / 20_000 == pytest.approx(0.1, abs=0.01)
    assert found.arrivals.rate == pytest.approx(40, rel=0.05)
    assert found.prompt.share_above(10_000) == pytest.approx(0.1, abs=0.01)
    frame = made.frame().collect()
    for name, profile in (("interactive", short), ("documents", long)):
        lengths = frame.filter(pl.col("request_class") == name)["prompt_tokens"]
        for q in (0.5, 0.95):
            expected = profile.overall().prompt.quantile(q)
            assert lengths.quantile(q) == pytest.approx(expected, rel=0.05)


def test_a_mixture_of_prefixes_shares_none(data: Path) -> None:
    real = profiled(data / "mooncake_120.jsonl")
    made = mix([Ingredient(real, 1, "a"), Ingredient(real, 1, "b")], 200, seed=1)
    frame = made.frame().collect()
    ids = [
        set(frame.filter(pl.col("request_class") == name)["prefix_blocks"].explode().drop_nulls())
        for name in ("a", "b")
    ]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_mistakes() -> None:
    with pytest.raises(UserMistake, match="not 0"):
        synthesize(of_lengths(1, 9), 0)
    with pytest.raises(UserMistake, match="at least one part"):
        mix([], 10)
