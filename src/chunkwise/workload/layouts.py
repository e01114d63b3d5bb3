"""Traces with lengths: which column means what, and the columns made from them.

Known layouts are recognised by the column with the prompt's length; the others
are taken if they are there. Invariant: whatever came in, the result has the
columns of `Workload`, with arrivals in seconds since the first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from chunkwise.errors import UserMistake
from chunkwise.workload.workload import OUTPUT_KINDS, Workload, unreadable

DEFAULT_BLOCK = 16


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns a kind of trace has."""

    name: str
    prompt: str
    output: str | None = None
    arrival: str | None = None
    arrival_unit: float = 1.0  # seconds in one unit of a numeric arrival
    blocks: str | None = None
    block_size: int = DEFAULT_BLOCK
    request_class: str | None = None

    def wanted(self, columns: Mapping[str, Any]) -> dict[str, str]:
        """Return our names of the columns that are there, and their names in the file."""
        names = {
            "arrival_s": self.arrival,
            "prompt_tokens": self.prompt,
            "output_tokens": self.output,
            "prefix_blocks": self.blocks,
            "request_class": self.request_class,
        }
        return {ours: theirs for ours, theirs in names.items() if theirs and theirs in columns}


LAYOUTS = (
    Layout("Azure LLM trace", "ContextTokens", "GeneratedTokens", "TIMESTAMP"),
    Layout("Mooncake trace", "input_length", "output_length", "timestamp", 1e-3, "hash_ids", 512),
    Layout(
        "BurstGPT trace",
        "Request tokens",
        "Response tokens",
        "Timestamp",
        request_class="Log Type",
    ),
    Layout(
        "table of lengths",
        "prompt_tokens",
        "output_tokens",
        "arrival_s",
        blocks="prefix_blocks",
        request_class="request_class",
    ),
)


def find_layout(columns: Mapping[str, Any]) -> Layout | None:
    """Return the layout that these columns have, if it is a known one."""
    return next((layout for layout in LAYOUTS if layout.prompt in columns), None)


def text_schema(layout: Layout, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types to read a text file's columns with: numbers as they come, checked later."""
    types: dict[str, Any] = {}
    for ours, theirs in layout.wanted(columns).items():
        if ours in ("prompt_tokens", "output_tokens"):
            types[theirs] = pl.Float64()
        elif ours == "prefix_blocks":
            # Ids are hashes as a rule, and those use all 64 bits.
            first = columns[theirs]
            signed = isinstance(first, list) and any(type(i) is int and i < 0 for i in first)
            types[theirs] = pl.List(pl.Int64() if signed else pl.UInt64())
        elif ours == "request_class":
            types[theirs] = pl.String()
    return types


def workload(lazy: pl.LazyFrame, layout: Layout, name: str, block_size: int | None) -> Workload:
    """Turn a scanned table of lengths into a workload."""
    try:
        schema = lazy.collect_schema()
        wanted = layout.wanted(schema)
        frame = lazy.select(
            _converted(ours, lazy, theirs, schema[theirs], layout).alias(ours)
            for ours, theirs in wanted.items()
        )
        if "output_tokens" in wanted:
            kinds = pl.Enum(OUTPUT_KINDS)
            frame = frame.with_columns(output_kind=pl.lit("known", dtype=kinds))
        columns = tuple(frame.collect_schema().names())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise unreadable(name, error) from None
    return Workload(name, layout.name, block_size or layout.block_size, False, frame, columns)


def _converted(
    ours: str, lazy: pl.LazyFrame, theirs: str, kind: pl.DataType, layout: Layout
) -> pl.Expr:
    column = pl.col(theirs)
    if ours == "prefix_blocks":
        if not isinstance(kind, pl.List) or not kind.inner.is_integer():
            raise UserMistake(f"`{theirs}` must hold lists of whole numbers, one per block.")
        unsigned = kind.inner.is_unsigned_integer()
        return column.cast(pl.List(pl.UInt64 if unsigned else pl.Int64))
    if ours == "request_class":
        return column.cast(pl.String)
    if ours != "arrival_s":
        return column
    if kind == pl.String:
        sample = lazy.select(column.drop_nulls().first()).collect().item() or ""
        zone = "%:z" if sample[-6:-5] in ("+", "-") else ("Z" if sample.endswith("Z") else "")
        column = column.str.replace("T", " ", literal=True)
        column = column.str.to_datetime(f"%Y-%m-%d %H:%M:%S%.f{zone}", time_unit="ns")
        return _since_first(lazy, column, 1e-9)
    if kind.is_temporal():
        return _since_first(lazy, column.cast(pl.Datetime("ns")), 1e-9)
    return _since_first(lazy, column, layout.arrival_unit)


def _since_first(lazy: pl.LazyFrame, column: pl.Expr, unit: float) -> pl.Expr:
    # The first arrival is read now and subtracted as a plain number, so that the
    # rest stays lazy; whole nanoseconds first, because a float cannot hold them.
    number = column.dt.epoch("ns") if unit == 1e-9 else column
    first = lazy.select(number.first()).collect().item()
    return (number - first) * unit if first is not None else number * unit
