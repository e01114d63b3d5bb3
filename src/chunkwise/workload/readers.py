"""From what a person names to workloads: a file, a folder, an address, a profile.

What a file is follows from its content. Invariant: opening reads the beginning
of a file only; rows are read when a workload's batches are. A file that a
person names and that cannot be read is their mistake; one among others in a
folder is left out, and the reason is kept.
"""

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from chunkwise.errors import UserMistake
from chunkwise.readers.capture import is_capture
from chunkwise.workload import layouts, texts
from chunkwise.workload.captured import newest
from chunkwise.workload.json_values import objects
from chunkwise.workload.layouts import Layout, find_layout
from chunkwise.workload.sniff import HEAD, Kind, sniff
from chunkwise.workload.text_workload import Reading, text_workload
from chunkwise.workload.workload import Workload, unreadable

SUFFIXES = (".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".gz")
MOST_FILES = 10_000
_ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


def files_in(folder: Path) -> list[Path]:
    """Return the folder's data files, in order of their names."""
    found: list[Path] = []
    for home, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(home, name) for name in sorted(names) if name.endswith(SUFFIXES)]
        if len(found) > MOST_FILES:
            raise UserMistake(f"{folder} has over {MOST_FILES:,} data files: name a part of it.")
    if not found:
        raise UserMistake(f"{folder} has no CSV, JSON, JSON lines or Parquet file in it.")
    return found


def is_address(place: str) -> bool:
    """Whether it names an object store or another scheme that polars reads."""
    return bool(_ADDRESS.match(place))


def open_address(address: str, reading: Reading) -> Workload:
    """Open an address as polars takes it, such as `s3://…` or `hf://datasets/…`."""
    scans: dict[str, Callable[[str], pl.LazyFrame]] = {
        ".parquet": pl.scan_parquet,
        ".csv": pl.scan_csv,
        ".jsonl": pl.scan_ndjson,
        ".ndjson": pl.scan_ndjson,
    }
    scan = next((scan for suffix, scan in scans.items() if address.endswith(suffix)), None)
    if scan is None:
        raise UserMistake(f"{address[:200]} must end with one of {', '.join(scans)}.")
    return _table(scan(address), address, reading)


def open_file(path: Path, name: str, reading: Reading) -> Workload:
    """Open a file, or a folder with captures. Usage: `open_file(Path("a.csv"), "a", Reading())`."""
    if is_capture(path):
        return newest(path)
    match sniff(path):
        case Kind.parquet:
            return _table(pl.scan_parquet(path, glob=False), name, reading)
        case Kind.csv:
            return _csv(path, name, reading)
        case kind:
            return _json(path, name, reading, kind)


def _csv(path: Path, name: str, reading: Reading) -> Workload:
    with path.open("rb") as file:
        if b"\n" not in file.read(HEAD):
            raise UserMistake(f"{path} has no line of column names at its start.")
    columns = _schema(pl.scan_csv(path, glob=False, infer_schema_length=100), name)
    if layout := _lengths_layout(columns, reading):
        types = layouts.text_schema(layout, columns)
        lazy = pl.scan_csv(path, glob=False, schema_overrides=types, infer_schema_length=100)
        return layouts.workload(lazy, layout, name, reading.block_size)
    return _table(pl.scan_csv(path, glob=False, infer_schema=False), name, reading)


def _json(path: Path, name: str, reading: Reading, kind: Kind) -> Workload:
    first = next(objects(path), None)
    if first is None:
        raise UserMistake(f"{path} holds no object.")
    layout = _lengths_layout(first, reading)
    if layout is None:
        return text_workload(lambda: objects(path), first, name, reading)
    types = layouts.text_schema(layout, first)
    arrival = layout.arrival
    if arrival in first:
        types[arrival] = pl.String() if isinstance(first[arrival], str) else pl.Float64()
    if kind is Kind.lines:
        # The one scan without a switch for it: a name with a star is this file only.
        lazy = pl.scan_ndjson(glob.escape(str(path)), schema=types)
        return layouts.workload(lazy, layout, name, reading.block_size)
    # Lengths in one JSON array: rare and small, so by way of Python, in batches.
    whole = layouts.workload(
        pl.DataFrame([first], schema=types).lazy(), layout, name, reading.block_size
    )
    made = partial(_array_batches, path, types, layout, name, whole.block_size)
    return Workload(name, whole.layout, whole.block_size, False, made, whole.columns)


def _array_batches(
    path: Path, types: dict[str, Any], layout: Layout, name: str, block_size: int
) -> Iterator[pl.DataFrame]:
    rows, origin = objects(path), None
    while batch := list(islice(rows, 4_096)):
        try:
            frame = pl.DataFrame([{key: row.get(key) for key in types} for row in batch], types)
        except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
            raise unreadable(name, error) from None
        origin = frame[:1] if origin is None else origin
        # With the file's first row in front, so that arrivals count from there.
        part = layouts.workload(pl.concat([origin, frame]).lazy(), layout, name, block_size)
        yield pl.concat(part.batches())[1:]


def _table(lazy: pl.LazyFrame, name: str, reading: Reading) -> Workload:
    columns = _schema(lazy, name)
    if layout := _lengths_layout(columns, reading):
        return layouts.workload(lazy, layout, name, reading.block_size)
    head = next(iter(_dicts(lazy.head(1), name)), None)
    if head is None:
        raise UserMistake(f"{name} has no rows.")
    wanted = texts.READ.union(reading.columns or texts.PROMPT_COLUMNS)
    needed = lazy.select(column for column in columns if column in wanted)
    return text_workload(lambda: _dicts(needed, name), head, name, reading)


def _dicts(lazy: pl.LazyFrame, name: str) -> Iterator[Mapping[str, Any]]:
    try:
        for batch in lazy.collect_batches(maintain_order=True, chunk_size=1_024):
            yield from batch.iter_rows(named=True)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise unreadable(name, error) from None


def _schema(lazy: pl.LazyFrame, name: str) -> pl.Schema:
    try:
        return lazy.collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise unreadable(name, error) from None


def _lengths_layout(columns: Mapping[str, Any], reading: Reading) -> Layout | None:
    if reading.columns is None:
        return find_layout(columns)
    # A column of numbers that a person names is the prompt's length in tokens.
    named = [name for name in reading.columns if name in columns]
    if len(named) == 1:
        kind = columns[named[0]]
        numeric = kind.is_numeric() if isinstance(kind, pl.DataType) else type(kind) is int
        if numeric:
            return Layout(f"lengths in `{named[0]}`", named[0], "output_tokens", "arrival_s")
    return None
