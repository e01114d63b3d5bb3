"""The way of our metrics out of the engine's process and into the server's `/metrics`.

The engine core serves no HTTP, and vLLM's messages have no room for our figures.
So the scribe keeps a small text file in Prometheus' own format, and `connect`,
an entry point that vLLM calls in every process, lets the API server's registry
read it when it is scraped. Where vLLM itself uses Prometheus' multiprocess files
(several API servers), ours go there by themselves, and no text file is needed.
Invariant: a text file is readable by its owner only and is shown only by the
server whose engine wrote it, while it is fresh.
"""

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chunkwise.engine.failopen import step_aside
from chunkwise.engine.orders import Orders
from chunkwise.engine.pacing_counts import PacingCounts
from chunkwise.engine.pacing_statistics import PacingStatistics
from chunkwise.engine.statistics import Statistics
from chunkwise.observed import Header, Record

EVERY = 1.0  # seconds between two text files
STALE = 60.0
LARGEST = 4 * 2**20


class Exporter:
    """Usage: `Exporter(header).take(record)`; what it counts shows in `/metrics`."""

    doing = "count its statistics"
    consequence = "its metrics stand still"

    def __init__(self, header: Header, pacing: PacingCounts | None = None):
        from prometheus_client import CollectorRegistry

        self._registry = CollectorRegistry()
        self._statistics = Statistics(header, self._registry)
        self._pacing = None if pacing is None else PacingStatistics(header, self._registry, pacing)
        self._file: Path | None = None
        if not os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            self._file = own_folder() / f"{header.run}-{header.capture}.prom"
            _sweep(self._file.parent)
        self._written = 0.0

    def take(self, record: Record) -> None:
        """Count one record."""
        self._statistics.take(record)

    def flush(self, dropped: int) -> None:
        """Publish what was counted, about once a second."""
        now = time.monotonic()
        if now - self._written < EVERY:
            return
        self._written = now
        self._statistics.settle(dropped)
        if self._pacing is not None:
            self._pacing.settle()
        if self._file is not None:
            from prometheus_client import write_to_textfile

            write_to_textfile(str(self._file), self._registry)

    def close(self) -> None:
        """Take the text file away: the engine is gone."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)


class TextFiles:
    """A collector for prometheus_client: the families in the files of this server's engines."""

    def describe(self) -> list[Any]:
        """Name nothing in advance; engines come and go."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield each family once, with the samples of all engines."""
        from prometheus_client.parser import text_string_to_metric_families

        families: dict[str, Any] = {}
        for text in fresh_texts(run_of(os.getpid()) or ""):
            for family in text_string_to_metric_families(text):
                known = families.setdefault(family.name, family)
                if known is not family:
                    known.samples += family.samples
        yield from families.values()


def connect() -> None:
    """Let this process's registry show our metrics; vLLM calls it in every process."""
    try:
        if Orders.read().mode == "off" or os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            return
        from prometheus_client import REGISTRY

        REGISTRY.register(TextFiles())
    except Exception as error:
        step_aside("join the server's metrics", error, "they are missing there")


def fresh_texts(run: str) -> Iterator[str]:
    """Yield the contents of the files that a server's engines wrote in the last minute."""
    try:
        _refuse_others(_folder())
    except OSError:
        return  # no engine of ours was ever here
    for file in sorted(_folder().glob(f"{run}-*.prom")):
        try:
            found = file.lstat()
            if stat.S_ISREG(found.st_mode) and time.time() - found.st_mtime < STALE:
                with file.open(encoding="utf-8") as opened:
                    yield opened.read(LARGEST)
        except (OSError, UnicodeDecodeError):
            continue  # it was just replaced or taken away


def own_folder() -> Path:
    """Return a folder for short-lived files that nobody else can read or put things into."""
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    _refuse_others(folder)
    return folder


def _folder() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"chunkwise-{os.getuid()}"


def _refuse_others(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of ours alone")


def _sweep(folder: Path) -> None:
    """Remove what engines that were killed left behind."""
    for file in folder.glob("*.prom"):
        with contextlib.suppress(OSError):
            if time.time() - file.lstat().st_mtime > 10 * STALE:
                file.unlink()


def run_of(process: int) -> str | None:
    """Return a name for a server: its process, and when it began; None if it cannot be known."""
    try:
        began = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError):
        return None
    return hashlib.blake2b(f"{boot}/{process}/{began}".encode(), digest_size=6).hexdigest()
