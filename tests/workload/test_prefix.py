from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.workload import prefix as module
from chunkwise.workload.blocks import chained
from chunkwise.workload.prefix import SIZES, PrefixCollector, PrefixSummary
from chunkwise.workload.stack import larger_before

# Few different ids, so that prefixes repeat; block size 4.
BLOCK = 4
requests = st.lists(
    st.tuples(st.lists(st.integers(0, 2), max_size=6), st.integers(0, 3)), max_size=25
)


def collected(
    rows: list[tuple[list[int], int]], most_held: int = 10**9, batch: int = 7
) -> PrefixSummary:
    """`rows`: block ids, and by how many tokens the last block falls short."""
    collector = PrefixCollector(BLOCK, most_held)
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        ids = np.array([i for row, _ in part for i in row], dtype=np.uint64)
        counts = np.array([len(row) for row, _ in part], dtype=np.int64)
        collector.add(ids, counts, np.array([tokens(row) for row in part], dtype=np.int64))
    return collector.summary()


def tokens(row: tuple[list[int], int]) -> int:
    blocks, short = row
    return max(0, len(blocks) * BLOCK - short)


def brute_force(rows: list[tuple[list[int], int]], capacity: int | None) -> tuple[int, int]:
    """Blocks and tokens found by an LRU cache that drops a prompt's end first."""
    cache: OrderedDict[tuple[int, ...], None] = OrderedDict()
    blocks = found = 0
    for ids, short in rows:
        keys = [tuple(ids[: i + 1]) for i in range(len(ids))]
        for index, key in enumerate(keys):
            if key not in cache:
                break  # a later block without this one is of no use
            blocks += 1
            found += BLOCK - (short if index == len(keys) - 1 else 0)
        for key in reversed(keys):
            cache[key] = None
            cache.move_to_end(key)
        while capacity is not None and len(cache) > capacity:
            cache.popitem(last=False)
    return blocks, found


@given(requests)
def test_reuse_equals_a_brute_force_count(rows: list[tuple[list[int], int]]) -> None:
    found = collected(rows)
    assert (found.seen_blocks, found.seen_tokens) == brute_force(rows, None)
    assert found.tokens == sum(map(tokens, rows))
    assert found.sampled == found.curve_sampled == 1


@given(requests, st.integers(1, 12))
def test_the_curve_equals_a_real_lru_cache(
    rows: list[tuple[list[int], int]], capacity: int
) -> None:
    before = module.SIZES
    module.SIZES = tuple(range(BLOCK, 40 * BLOCK, BLOCK))
    try:
        found = collected(rows)
    finally:
        module.SIZES = before
    expected = brute_force(rows, capacity)[1]
    assert found.share_with(capacity * BLOCK) * found.tokens == pytest.approx(expected)


@given(requests, requests)
def test_merging_is_a_lower_bound(
    a: list[tuple[list[int], int]], b: list[tuple[list[int], int]]
) -> None:
    merged, whole = collected(a).merged(collected(b)), collected(a + b)
    assert merged.lower_bound
    assert merged.tokens == whole.tokens
    assert merged.blocks == whole.blocks
    assert merged.seen_tokens <= whole.seen_tokens
    for size in SIZES:
        assert merged.share_with(size) <= whole.share_with(size) + 1e-12


def trace(count: int) -> list[tuple[list[int], int]]:
    """A shared beginning, a few thousand documents, and a part that is new each time."""
    rng = np.random.default_rng(2)
    rows = []
    for index in range(count):
        document = int(3000 * rng.random() ** 2)
        shared = [document * 100 + k for k in range(1, int(rng.integers(1, 20)))]
        rows.append(([0, *shared, 10**6 + index, 2 * 10**6 + index], int(rng.integers(0, 4))))
    return rows


def test_bounded_memory_stays_within_the_stated_error() -> None:
    rows = trace(4000)
    exact, sampled = collected(rows), collected(rows, most_held=8_000, batch=300)
    assert sampled.sampled < 0.5
    assert sampled.tokens == exact.tokens
    assert 0 < sampled.error < 0.05
    assert abs(sampled.seen_share - exact.seen_share) <= sampled.error
    for size in SIZES[:12]:
        assert sampled.share_with(size) == pytest.approx(exact.share_with(size), abs=0.06)


def test_a_sampled_curve_is_close(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = trace(4000)
    exact = collected(rows)
    monkeypatch.setattr(module, "MOST_IN_CURVE", 12_000)
    found = collected(rows)
    assert found.curve_sampled < 0.5
    assert found.seen_tokens == exact.seen_tokens  # only the curve is sampled
    for size in SIZES[:12]:
        assert found.share_with(size) == pytest.approx(exact.share_with(size), abs=0.06)


@given(st.permutations(list(range(40))))
def test_larger_before(values: list[int]) -> None:
    found = larger_before(np.array(values))
    assert found.tolist() == [sum(b > a for b in values[:i]) for i, a in enumerate(values)]


@given(st.lists(st.lists(st.integers(0, 3), max_size=9), max_size=12), st.integers(1, 4))
def test_ids_are_equal_exactly_where_prefixes_are(rows: list[list[int]], every: int) -> None:
    flat = np.array([v for row in rows for v in row], dtype=np.uint64)
    ids, counts = chained(flat, np.array([len(row) for row in rows], dtype=np.int64), every)
    prefixes = [tuple(row[: k * every]) for row in rows for k in range(1, len(row) // every + 1)]
    assert counts.tolist() == [len(row) // every for row in rows]
    pairs = set(zip(ids.tolist(), prefixes, strict=True))
    assert len(pairs) == len(set(prefixes)) == len({i for i, _ in pairs})
