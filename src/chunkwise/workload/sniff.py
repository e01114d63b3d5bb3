"""What a file is, from its first bytes, without reading it all.

Invariant: nothing here reads more than `HEAD` bytes, except the check for
endless lines, which reads a little at every `LONGEST_LINE` bytes. Names and
suffixes decide nothing: people call JSON lines `.json`.
"""

import codecs
from enum import StrEnum
from pathlib import Path

from chunkwise.errors import UserMistake

HEAD = 64 * 1024
LONGEST_LINE = 16 * 2**20
_PIECE = 64 * 1024

_PACKED = {
    b"\x1f\x8b": ("gzip", "gunzip -k"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"PK\x03\x04": ("zip", "unzip"),
    b"\xfd7zXZ": ("xz", "unxz -k"),
    b"BZh": ("bzip2", "bunzip2 -k"),
}


class Kind(StrEnum):
    """Forms of file that can be read."""

    parquet = "Parquet"
    csv = "CSV"
    lines = "JSON lines"
    json = "JSON"


def sniff(path: Path) -> Kind:
    """Return what the file is. Usage: `sniff(Path("log.jsonl")) is Kind.lines`."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise UserMistake(f"Cannot read {path}: {error.strerror or error}.") from None
    if not head:
        raise UserMistake(f"{path} is empty.")
    if head.startswith(b"PAR1"):
        return Kind.parquet
    for magic, (name, command) in _PACKED.items():
        if head.startswith(magic):
            raise UserMistake(f"{path} is packed ({name}): unpack it first, `{command} {path}`.")
    text = _text(head.removeprefix(codecs.BOM_UTF8))
    if text is None:
        raise UserMistake(
            f"{path} is binary and not Parquet: give CSV, JSON, JSON lines or Parquet."
        )
    start = text.lstrip()[:1]
    if start == "[":
        return Kind.json
    kind = Kind.csv
    if start == "{":
        first = text.lstrip().split("\n", 1)[0].rstrip()
        # An object over several lines is JSON too, read value by value.
        kind = Kind.lines if first.endswith("}") or "\n" not in text.lstrip() else Kind.json
    if kind is not Kind.json:
        refuse_endless_line(path)
    return kind


def refuse_endless_line(path: Path) -> None:
    """Raise if a line is over twice `LONGEST_LINE`; shorter than once is never refused."""
    size = path.stat().st_size
    with path.open("rb") as file:
        for mark in range(0, size, LONGEST_LINE):
            file.seek(mark)
            for _ in range(LONGEST_LINE // _PIECE):
                piece = file.read(_PIECE)
                if not piece or b"\n" in piece:
                    break
            else:
                raise UserMistake(
                    f"{path} has a line of over {LONGEST_LINE // 2**20} MiB near byte {mark:,}: "
                    f"that is not one request. Put each request on a line of its own."
                )


def _text(head: bytes) -> str | None:
    if b"\x00" in head:
        return None
    try:
        # The last character may be cut by the end of what was read.
        return codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return None
