"""Read captures: compressed JSON lines from a server that may have died writing them.

Files are taken as hostile: a line is bounded, and so is how far a file may
unfold. Invariant: a capture is read in the order in which it was written, one
record in memory at a time; what is torn off at a file's end is left out, what
is wrong in the middle is the sentence that the reader gets.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chunkwise.errors import UserMistake
from chunkwise.observed import SUFFIX, Header, Record, Step, parse, parse_header

LONGEST_LINE = 16 * 2**20
MOST_BYTES = 64 * 2**30  # unfolded, of one file
_PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Capture:
    """One engine, watched from its start on. Usage: `for record in capture.records(): …`."""

    header: Header  # of its first part
    files: tuple[Path, ...]

    def records(self) -> Iterator[Record]:
        """Yield steps and requests in the order in which they ended."""
        for file in self.files:
            lines = _lines(file)
            next(lines, None)  # the header
            for line in lines:
                record = _record(file, line)
                if record is not None:
                    yield record

    @property
    def dropped(self) -> int:
        """How many records the server lost because it was too busy to write them."""
        return max(
            (int(line["dropped"]) for file in self.files for line in _lines(file, b'{"dropped"')),
            default=0,
        )


def is_capture(place: Path) -> bool:
    """Tell whether a path is a capture's file or a folder that holds some."""
    if place.is_dir():
        return any(place.glob(f"*{SUFFIX}"))
    return place.name.endswith(SUFFIX) and place.is_file()


def captures(place: Path) -> list[Capture]:
    """Return the captures in a folder, or of one file. Usage: `captures(Path(folder))`."""
    files = sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else [place]
    if not files:
        raise UserMistake(
            f"{place} holds no capture (*{SUFFIX}): start the server with CHUNKWISE=observe, "
            f"CHUNKWISE_DIR={place} and --scheduler-cls chunkwise.PacedScheduler."
        )
    found: dict[str, list[tuple[Header, Path]]] = {}
    for file in files:
        header = read_header(file)
        if header is not None:
            found.setdefault(header.capture, []).append((header, file))
    if not found:
        raise UserMistake(f"{place} holds captures that were never begun: nothing is in them.")
    made = []
    for parts in found.values():
        parts.sort(key=lambda item: item[0].part)
        made.append(Capture(parts[0][0], tuple(file for _, file in parts)))
    return sorted(made, key=lambda capture: (capture.header.started, capture.header.engine))


def runs(found: Iterable[Capture]) -> list[list[Capture]]:
    """Group the captures of a server's engines, in order of their start."""
    grouped: dict[str, list[Capture]] = {}
    for capture in found:
        grouped.setdefault(capture.header.run, []).append(capture)
    return list(grouped.values())


def read_header(file: Path) -> Header | None:
    """Return a file's header; None for a file that died before it was written."""
    first = next(_lines(file), None)
    if first is None:
        return None
    try:
        return parse_header(first)
    except (ValueError, TypeError) as error:
        raise UserMistake(f"{file} is not a capture: {error}.") from None


def calibration(step: Step) -> tuple[list[tuple[int, int]], int, int, float]:
    """Return a step as cost models take it: chunks, decodes, sum of their contexts, seconds.

    Usage: `StepShape.of(chunks).with_decodes(decodes, context)` costs `seconds`.
    """
    return step.chunk_sizes, step.decodes, step.decode_context, step.seconds


def _record(file: Path, line: dict[str, Any]) -> Record | None:
    try:
        return parse(line)
    except ValueError as error:
        raise UserMistake(f"{file} holds {error}: it was changed after it was written.") from None


def _lines(file: Path, start: bytes = b"") -> Iterator[dict[str, Any]]:
    for text in _texts(file):
        if not text.startswith(start):
            continue
        try:
            line = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            raise UserMistake(f"{file} has a line that is not JSON: it is not a capture.") from None
        if not isinstance(line, dict):
            raise UserMistake(f"{file} has a line that is not an object: it is not a capture.")
        yield line


def _texts(file: Path) -> Iterator[bytes]:
    """Yield whole lines; a last one without its end is left out."""
    unpack = zlib.decompressobj(wbits=31)
    rest, total = b"", 0
    try:
        with file.open("rb") as packed:
            while piece := packed.read(_PIECE):
                while piece:
                    text = unpack.decompress(piece, LONGEST_LINE)
                    piece = unpack.unconsumed_tail
                    total += len(text)
                    *lines, rest = (rest + text).split(b"\n")
                    yield from lines
                    if len(rest) > LONGEST_LINE or total > MOST_BYTES:
                        raise UserMistake(f"{file} unfolds to more than a capture can hold.")
    except OSError as error:
        raise UserMistake(f"Cannot read {file}: {error.strerror or error}.") from None
    except zlib.error:
        if not total:
            raise UserMistake(f"{file} is not a capture: it is not packed with gzip.") from None
        # Torn in the middle of a block: what came before it has been yielded.


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number")
