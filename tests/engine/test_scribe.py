import time
from pathlib import Path
from typing import Any

import pytest
from tests.captures import request

from chunkwise.engine import exporter, scribe
from chunkwise.engine.blocks import BlockIds
from chunkwise.engine.scribe import Scribe
from chunkwise.observed import Chunk, Header, Step

prometheus = pytest.importorskip("prometheus_client")


class Kept:
    doing, consequence = "keep", "nothing is kept"

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.dropped = 0
        self.closed = False

    def take(self, record: Any) -> None:
        self.records.append(record)

    def flush(self, dropped: int) -> None:
        self.dropped = dropped

    def close(self) -> None:
        self.closed = True


def test_a_full_ring_drops_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scribe, "RING", 10)
    writing, kept = Scribe(), Kept()
    for number in range(25):
        writing.put(Step(number, 0.0, 0.0))
    writing.start(lambda raw, blocks: raw, kept)
    writing.close()
    assert [step.number for step in kept.records] == list(range(10))
    assert kept.dropped == 15
    assert kept.closed


def test_ids_follow_the_content_and_a_key_of_their_own() -> None:
    one, other = BlockIds(), BlockIds()
    assert one([b"a", b"b"]) == one([b"a"]) + one([b"b"])
    assert one([b"a"]) != other([b"a"])
    assert len(one([b"a", b"b", b"c"])) == 24


def test_metrics_reach_the_registry_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    monkeypatch.setattr(exporter, "run_of", lambda process: "mine")
    monkeypatch.setattr(exporter, "EVERY", 0.0)
    engines = [
        exporter.Exporter(Header(f"c{n}", "mine", 0.0, engine=n, itl=0.05, classes=("chat",)))
        for n in range(2)
    ]
    exporter.Exporter(Header("other", "theirs", 0.0)).flush(0)
    for engine in engines:
        engine.take(Step(0, 1.0, 0.1, (Chunk(0, 100, 0),), ended=(0,)))
        engine.take(Step(1, 1.2, 0.2, (Chunk(1, 50, 0),), 3, 3, 300))
        engine.take(request(0, 0.0))
        engine.flush(4)
    registry = prometheus.CollectorRegistry()
    registry.register(exporter.TextFiles())

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"chunkwise_{name}", {"engine": "1", **labels})

    assert value("step_seconds_count", kind="mixed") == 1
    assert value("gaps_total", le="0.15") == 0
    assert value("gaps_total", le="0.2") == 3
    assert value("stalls_total", cause="long step: prefill beside it") == 3
    assert value("stall_seconds_total", cause="long step: prefill beside it") == pytest.approx(0.45)
    assert value("request_chunks_count", **{"class": "chat"}) == 1
    assert value("uncached_prompt_tokens_total", **{"class": "chat"}) == 84
    assert value("interleaving_ratio") == 0.5
    assert value("dropped_records_total") == 4
    text = prometheus.generate_latest(registry).decode()
    assert text.count("# TYPE chunkwise_step_seconds histogram") == 1
    for engine in engines:
        engine.close()
    assert prometheus.generate_latest(registry) == b""


def test_a_file_that_nobody_renews_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file = exporter.own_folder() / "mine-x.prom"
    file.write_text("a 1\n")
    assert list(exporter.fresh_texts("mine")) == ["a 1\n"]
    monkeypatch.setattr(time, "time", lambda: file.stat().st_mtime + exporter.STALE + 1)
    assert list(exporter.fresh_texts("mine")) == []


def test_a_folder_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    exporter.own_folder().chmod(0o755)
    with pytest.raises(PermissionError):
        exporter.own_folder()
