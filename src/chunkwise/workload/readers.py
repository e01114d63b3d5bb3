"""From what a person names to workloads: a file, a folder, an address, a profile.

What a file is follows from its content. Invariant: opening reads the beginning
of a file only; rows are read when a workload's batches are. A file that a
person names and that cannot be read is their mistake; one among others in a
folder is left out, and the reason is kept.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl

from chunkwise.errors import UserMistake
from chunkwise.workload import layouts, texts
from chunkwise.workload.json_values import objects
from chunkwise.workload.layouts import DEFAULT_BLOCK, Layout, find_layout
from chunkwise.workload.measure import Estimate, Measured, measure
from chunkwise.workload.sniff import HEAD, Kind, sniff
from chunkwise.workload.texts import TextLayout, find_text
from chunkwise.workload.tokens import Batch
from chunkwise.workload.workload import COLUMNS, OUTPUT_KINDS, Workload, unreadable

SUFFIXES = (".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".gz")
MOST_FILES = 10_000
_ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


class Meter(Protocol):
    """Measures batches of text; a `TokenPool`, or an estimate."""

    def measured(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Measured]]:
        """Yield each batch with its numbers, in order."""
        ...


class EstimateMeter:
    """Measures in this process, four characters a token."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size

    def measured(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Measured]]:
        """Yield each batch with its numbers, in order."""
        for batch in batches:
            yield batch, measure(batch, Estimate(), self._block_size)


@dataclass(frozen=True)
class Reading:
    """How to read. `meter` is called when the first text is met; None: there is no way."""

    columns: tuple[str, ...] | None = None
    block_size: int | None = None
    estimate: bool = False
    meter: Callable[[], Meter] | None = field(default=None, compare=False)


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
    """Open one file. Usage: `open_file(Path("log.csv"), "log.csv", Reading())`."""
    match sniff(path):
        case Kind.parquet:
            return _table(pl.scan_parquet(path), name, reading)
        case Kind.csv:
            return _csv(path, name, reading)
        case kind:
            return _json(path, name, reading, kind)


def _csv(path: Path, name: str, reading: Reading) -> Workload:
    with path.open("rb") as file:
        if b"\n" not in file.read(HEAD):
            raise UserMistake(f"{path} has no line of column names at its start.")
    as_text = pl.scan_csv(path, infer_schema=False)
    columns = _schema(as_text, name)
    if layout := _lengths_layout(columns, reading):
        types = layouts.text_schema(layout, columns)
        lazy = pl.scan_csv(path, schema_overrides=types, infer_schema_length=100)
        return layouts.workload(lazy, layout, name, reading.block_size)
    return _table(as_text, name, reading)


def _json(path: Path, name: str, reading: Reading, kind: Kind) -> Workload:
    first = next(objects(path), None)
    if first is None:
        raise UserMistake(f"{path} holds no object.")
    layout = _lengths_layout(first, reading)
    if layout is None:
        return _text(lambda: objects(path), first, name, reading)
    types = layouts.text_schema(layout, first)
    arrival = layout.arrival
    if arrival in first:
        types[arrival] = pl.String() if isinstance(first[arrival], str) else pl.Float64()
    if kind is Kind.lines:
        return layouts.workload(
            pl.scan_ndjson(path, schema=types), layout, name, reading.block_size
        )
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
    return _text(lambda: _dicts(lazy, name), head, name, reading)


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


def _text(
    rows: Callable[[], Iterator[Mapping[str, Any]]],
    first: Mapping[str, Any],
    name: str,
    reading: Reading,
) -> Workload:
    layout = find_text(first, reading.columns)
    if layout is None:
        found = ", ".join(f"`{str(column)[:40]}`" for column in islice(first, 20))
        asked = "" if reading.columns is None else f" `{','.join(reading.columns)}`"
        raise UserMistake(
            f"{name}: no prompt found{' under' + asked if asked else ''}. Its columns are {found}: "
            f"name the one with the prompt, such as --column {str(next(iter(first), 'text'))[:40]}."
        )
    if reading.meter is None:
        raise UserMistake(
            f"{name} holds text ({layout.name}): name the model whose tokenizer counts it with "
            f"--model, or count characters ÷ 4 with --estimate."
        )
    block_size = reading.block_size or DEFAULT_BLOCK
    made = partial(_measured, rows, layout, name, reading.meter, reading.estimate)
    wanted = {"prompt_tokens", "prompt_chars", "output_tokens", "output_kind", "prefix_blocks"}
    wanted |= {"arrival_s"} if layout.has_arrivals else set()
    wanted |= {"request_class"} if layout.has_classes else set()
    columns = tuple(column for column in COLUMNS if column in wanted)
    notes = (layout.note,) if layout.note else ()
    return Workload(name, layout.name, block_size, reading.estimate, made, columns, notes)


def _measured(
    rows: Callable[[], Iterator[Mapping[str, Any]]],
    layout: TextLayout,
    name: str,
    meter: Callable[[], Meter],
    estimate: bool,
) -> Iterator[pl.DataFrame]:
    origin: float | None = None
    for batch, numbers in meter().measured(texts.batches(rows(), layout, name)):
        if layout.has_arrivals and origin is None:
            origin = batch[0]["arrival"]
        yield _frame(batch, numbers, layout, origin or 0.0, estimate)


def _frame(
    batch: Batch, numbers: Measured, layout: TextLayout, origin: float, estimate: bool
) -> pl.DataFrame:
    outputs: list[int | None] = []
    kinds: list[str | None] = []
    for row, counted in zip(batch, numbers.output_tokens.tolist(), strict=True):
        if row["known"] is not None:
            outputs.append(row["known"])
            kinds.append("known")
        elif counted >= 0:
            outputs.append(counted)
            kinds.append("estimated" if estimate else "known")
        else:
            outputs.append(row["limit"])
            kinds.append(None if row["limit"] is None else "limited")
    blocks = np.split(numbers.block_ids, np.cumsum(numbers.block_counts)[:-1])
    columns: dict[str, Any] = {}
    if layout.has_arrivals:
        columns["arrival_s"] = pl.Series([row["arrival"] - origin for row in batch])
    columns |= {
        "prompt_tokens": numbers.tokens,
        "prompt_chars": numbers.characters,
        "output_tokens": pl.Series(outputs, dtype=pl.Int64),
        "output_kind": pl.Series(kinds, dtype=pl.Enum(OUTPUT_KINDS)),
        "prefix_blocks": pl.Series(list(map(pl.Series, blocks)), dtype=pl.List(pl.UInt64)),
    }
    if layout.has_classes:
        columns["request_class"] = [row["class"] for row in batch]
    return pl.DataFrame(columns)
