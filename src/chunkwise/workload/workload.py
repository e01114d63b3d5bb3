"""`Workload`: requests as columns, read lazily, checked as they pass.

Columns, those that are known: `arrival_s` (seconds since the first arrival),
`prompt_tokens`, `prompt_chars`, `output_tokens` with `output_kind` (known: as
generated; limited: at most this many; estimated), `prefix_blocks` (ids of the
prompt's blocks of `block_size` tokens), `request_class`. Invariant: what
`batches()` yields has been checked (whole numbers from 0, nothing missing), and
only one batch is in memory at a time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from chunkwise.errors import UserMistake
from chunkwise.workload.lengths import LARGEST

OUTPUT_KINDS = ("known", "limited", "estimated")
COLUMNS: dict[str, Any] = {
    "arrival_s": pl.Float64(),
    "prompt_tokens": pl.Int64(),
    "prompt_chars": pl.Int64(),
    "output_tokens": pl.Int64(),
    "output_kind": pl.Enum(OUTPUT_KINDS),
    "prefix_blocks": pl.List(pl.UInt64()),
    "request_class": pl.String(),
}


@dataclass(frozen=True)
class Workload:
    """One dataset's requests. Usage: `for batch in workload.batches(): …`."""

    name: str
    layout: str  # what the reader took it for, in words
    block_size: int
    estimated: bool  # lengths are characters ÷ 4
    source: pl.LazyFrame | Callable[[], Iterator[pl.DataFrame]]
    columns: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, frame: pl.DataFrame, name: str, block_size: int = 16) -> "Workload":
        """Wrap columns that are already in memory. Usage: `Workload.of(frame, "made")`."""
        columns = tuple(name for name in COLUMNS if name in frame.columns)
        return cls(name, "table in memory", block_size, False, frame.lazy(), columns)

    def frame(self) -> pl.LazyFrame:
        """Return all columns and the dataset's name, lazily."""
        schema = {name: COLUMNS[name] for name in self.columns}
        lazy = self.source
        if not isinstance(lazy, pl.LazyFrame):
            lazy = register_io_source(self._pushed, schema=pl.Schema(schema))
        return lazy.with_columns(
            *(pl.col(name).cast(kind) for name, kind in schema.items()), dataset=pl.lit(self.name)
        )

    def batches(self) -> Iterator[pl.DataFrame]:
        """Yield the rows in order, checked, a bounded number at a time."""
        rows = 0
        for batch in self._raw():
            yield _checked(batch, rows, self.name)
            rows += len(batch)

    def _pushed(
        self,
        columns: list[str] | None,
        predicate: pl.Expr | None,
        rows: int | None,
        size: int | None,
    ) -> Iterator[pl.DataFrame]:
        # What polars asks of a source: only these columns and rows.
        left = rows
        for batch in self.batches():
            part = batch if columns is None else batch.select(columns)
            part = part if left is None else part.head(left)
            left = None if left is None else left - len(part)
            yield part if predicate is None else part.filter(predicate)
            if left == 0:
                return

    def _raw(self) -> Iterator[pl.DataFrame]:
        if not isinstance(self.source, pl.LazyFrame):
            yield from self.source()
            return
        try:
            yield from self.source.collect_batches(maintain_order=True)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise unreadable(self.name, error) from None


def unreadable(name: str, error: Exception) -> UserMistake:
    """Return the sentence for a file that polars cannot read."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0] if lines else type(error).__name__
    return UserMistake(f"Cannot read {name}: {reason[:200]}")


def _checked(batch: pl.DataFrame, before: int, name: str) -> pl.DataFrame:
    for column in ("arrival_s", "prompt_tokens", "output_tokens"):
        if column not in batch.columns:
            continue
        values = batch[column]
        if not values.dtype.is_numeric():
            raise UserMistake(f"{name}: {column} holds {values.dtype}, not numbers.")
        for wrong, what in _faults(values, column):
            if wrong.any():
                row = before + (wrong.fill_null(False).arg_max() or 0) + 1
                raise UserMistake(
                    f"{name}: {column} of request {row:,} {what}: mend or remove that row, then "
                    f"try again."
                )
        if values.dtype != COLUMNS[column]:
            batch = batch.with_columns(values.cast(COLUMNS[column]))
    return batch


def _faults(values: pl.Series, column: str) -> Iterator[tuple[pl.Series, str]]:
    """Yield which values are wrong and how; one kind after another, as later ones need earlier."""
    if column != "output_tokens":  # of some requests nobody knows it
        yield values.is_null(), "is missing"
    if values.dtype.is_float():
        yield ~values.is_finite(), "is not a number"
    if column != "arrival_s":
        if values.dtype.is_float():
            yield values != values.floor(), "is not a whole number"
        yield values < 0, "is negative"
        yield values > LARGEST, f"is over {LARGEST:,}"
