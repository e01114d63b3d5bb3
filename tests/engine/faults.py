"""Where our part of a live engine can raise, so that tests can make it."""

from typing import Any

from chunkwise.engine import capture, exporter, pacer, scribe, watcher


def boom(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("planted")


FAULTS: dict[str, tuple[Any, str]] = {
    "building the post": (watcher.Watcher, "__init__"),
    "a new request": (watcher.Watcher, "added"),
    "a decided step": (watcher.Watcher, "scheduled"),
    "a step's result": (watcher.Watcher, "updated"),
    "a record": (watcher.Watcher, "record"),
    "a record's ids": (scribe.BlockIds, "__call__"),
    "a line": (capture, "line_of"),
    "a new file": (capture.CaptureFiles, "_begin"),
    "a flush": (capture.CaptureFiles, "flush"),
    "the end of a file": (capture.CaptureFiles, "close"),
    "a statistic": (exporter.Statistics, "take"),
    "publishing": (exporter.Statistics, "settle"),
    "stopping": (scribe.Scribe, "close"),
}

PACING_FAULTS: dict[str, tuple[Any, str]] = {
    "a new prompt": (pacer.Pacer, "added"),
    "a decision": (pacer.Pacer, "set_levers"),
    "a cap": (pacer.Pacer, "cap"),
    "restoring": (pacer.Pacer, "restore"),
    "a decided step": (pacer.Pacer, "scheduled"),
    "a step's end": (pacer.Pacer, "ended"),
    "leaving": (pacer.Pacer, "leave"),
}
