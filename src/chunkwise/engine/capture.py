"""The capture on disk: compressed JSON lines in files of bounded size and number.

Invariant: only the owner can read a file; what has been flushed can be read
even if the process dies the next moment; no more than `MOST_PARTS` files of
about `PART_BYTES` exist of one capture, the oldest go first. A disk that is
full or read-only ends the capture, nothing else.
"""

import gzip
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from chunkwise.observed import SUFFIX, Header, Record, header_line, line_of

PART_BYTES = 16 * 2**20
MOST_PARTS = 64


class CaptureFiles:
    """Usage: `files = CaptureFiles(folder, header); files.take(record); files.flush(0)`."""

    doing = "write its capture"
    consequence = "the capture ends here"

    def __init__(self, folder: Path, header: Header):
        self._folder = folder
        self._header = header
        self._part = 0
        self._parts: list[Path] = []
        self._file: gzip.GzipFile | None = None
        self._raw: Any = None
        self._dropped = 0
        self._fresh = False

    def take(self, record: Record) -> None:
        """Write a record; visible to readers after `flush`."""
        self._write(line_of(record))

    def flush(self, dropped: int) -> None:
        """Hand everything to the operating system and begin a new file if this one is full."""
        if self._file is None:
            self._begin()  # at once: an unwritable folder is said at the start
        if dropped > self._dropped:
            self._dropped = dropped
            self._write({"dropped": dropped})
        if self._fresh:
            assert self._file is not None
            self._file.flush()
            self._raw.flush()
            self._fresh = False
            if self._raw.tell() >= PART_BYTES:
                self._end()

    def close(self) -> None:
        """Finish the file; the directory then holds complete files only."""
        self._end()

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            self._begin()
        assert self._file is not None
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._fresh = True

    def _begin(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._part += 1
        path = self._folder / self._name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._raw = os.fdopen(os.open(path, flags, 0o600), "wb")
        self._file = gzip.GzipFile(fileobj=self._raw, mode="wb", compresslevel=6, filename="")
        self._parts.append(path)
        self._write(header_line(replace(self._header, part=self._part)))
        while len(self._parts) > MOST_PARTS:
            self._parts.pop(0).unlink(missing_ok=True)

    def _end(self) -> None:
        file, raw, self._file, self._raw = self._file, self._raw, None, None
        if file is not None:
            try:
                file.close()
            finally:
                raw.close()

    def _name(self) -> str:
        header = self._header
        day = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(header.started))
        return f"{day}-{header.capture}-engine{header.engine}-{self._part:05d}{SUFFIX}"
