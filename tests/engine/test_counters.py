from pathlib import Path

from chunkwise.engine import counters
from chunkwise.engine.counters import ChunkingStats, Counted, Counters
from chunkwise.engine.recorder import Chunk, Step


def test_steps_become_figures(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    counters.create(path)
    assert path.stat().st_mode & 0o077 == 0
    count = Counters(path)
    whole = Chunk("a", 47, 0, 47)
    assert not count.step(Step((whole,), 0), (), 0.1)
    assert count.step(Step((Chunk("b", 60, 0, 100),), 1), (), 0.2)
    count.chunk_time(0.5)
    assert count.step(Step((Chunk("b", 40, 60, 100),), 1), (), 0.3)
    count.chunk_time(1.5)
    assert not count.step(Step((), 2), (), 0.25)
    seen = counters.read(path)
    assert seen
    assert ChunkingStats.of(seen) == ChunkingStats(
        requests=2,
        chunked_requests=1,
        chunks=2,
        chunking_rate=0.5,
        prefill_tokens=147,
        decode_tokens=4,
        steps=4,
        interleaving_ratio=2 / 3,
        mean_chunk_seconds=1.0,
        kv_headroom=0.7,
        preemptions=0,
    )


def test_a_preempted_request_is_still_one_request(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    counters.create(path)
    count = Counters(path)
    count.step(Step((Chunk("a", 50, 0, 100),), 0), (), 0.9)
    count.step(Step((), 1), ("a",), 1.0)
    count.step(Step((Chunk("a", 70, 0, 100),), 0), (), 0.9)
    count.step(Step((Chunk("a", 30, 70, 100),), 0), (), 0.9)
    seen = counters.read(path)
    assert seen
    stats = ChunkingStats.of(seen)
    assert (stats.requests, stats.chunked_requests, stats.preemptions) == (1, 1, 1)
    assert stats.prefill_tokens == 150  # the work was done twice


def test_counting_that_failed_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    counters.create(path)
    Counters(path).void()
    assert counters.read(path) is None


def test_nothing_seen_divides_nothing() -> None:
    assert ChunkingStats.of(Counted()).chunking_rate == 0
