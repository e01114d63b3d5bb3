"""Workloads made of text: measured batch by batch, by a tokenizer or an estimate.

The rows come from any file; here each becomes numbers. Invariant: a batch's
text is dropped as soon as it is measured.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Protocol

import numpy as np
import polars as pl

from chunkwise.errors import UserMistake
from chunkwise.workload import texts
from chunkwise.workload.layouts import DEFAULT_BLOCK
from chunkwise.workload.measure import Estimate, Measured, measure
from chunkwise.workload.texts import TextLayout, find_text
from chunkwise.workload.tokens import Batch
from chunkwise.workload.workload import COLUMNS, OUTPUT_KINDS, Workload

Rows = Callable[[], Iterator[Mapping[str, Any]]]


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


def text_workload(rows: Rows, first: Mapping[str, Any], name: str, reading: Reading) -> Workload:
    """Turn rows with text into a workload; `first` is the first of them."""
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
    rows: Rows,
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
