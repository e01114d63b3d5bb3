"""A server's own traffic, as the plug-in wrote it down, as a workload.

Records stand in the order in which requests ended; a workload has them in the
order in which they came. Invariant: only columns are held, those of one run.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np
import polars as pl

from chunkwise.errors import UserMistake
from chunkwise.observed import Request
from chunkwise.readers.capture import Capture, captures, runs
from chunkwise.workload.workload import COLUMNS, OUTPUT_KINDS, Workload

_BATCH = 4_096


def name_of(run: Sequence[Capture]) -> str:
    """Return what a run is called: the model, and when its server started."""
    header = run[0].header
    start = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(header.started))
    return f"{header.model or 'capture'}, {start} UTC"


def captured(run: Sequence[Capture]) -> Workload:
    """Return the traffic of one server, all its engines together."""
    headers = [capture.header for capture in run]
    columns = ["arrival_s", "prompt_tokens", "output_tokens", "output_kind"]
    if all(header.prefix_caching for header in headers):
        columns.append("prefix_blocks")
    if any(header.classes for header in headers):
        columns.append("request_class")
    notes = []
    if len(run) > 1 and "prefix_blocks" in columns:
        notes.append(
            f"{len(run)} engines served this; prefixes are compared within each, as the caches do."
        )
    if dropped := sum(capture.dropped for capture in run):
        notes.append(f"{dropped:,} records are missing: the server was too busy to write them.")
    if len({header.block_size for header in headers}) > 1:
        raise UserMistake("The engines of one run have blocks of different sizes.")
    return Workload(
        name_of(run),
        "Chunkwise capture",
        headers[0].block_size,
        False,
        partial(_batches, run, columns),
        tuple(columns),
        tuple(notes),
    )


def newest(place: Path) -> Workload:
    """Return the traffic of the last server that wrote into a folder."""
    found = runs(captures(place))
    last = captured(found[-1])
    if len(found) == 1:
        return last
    note = f"The last of {len(found)} servers that wrote into {place.name} is taken."
    return replace(last, notes=(*last.notes, note))


def _batches(run: Sequence[Capture], columns: list[str]) -> Iterator[pl.DataFrame]:
    rows = chain.from_iterable(_requests(capture) for capture in run)
    frames = []
    while batch := list(islice(rows, _BATCH)):
        frames.append(_frame(batch))
    if not frames:
        raise UserMistake("No request ended while this capture was written: let it run longer.")
    whole = pl.concat(frames).sort("arrival_s", maintain_order=True)
    first = whole["arrival_s"][0]
    whole = whole.with_columns(pl.col("arrival_s") - first).select(columns)
    yield from whole.iter_slices(65_536)


def _requests(capture: Capture) -> Iterator[tuple[float, Request]]:
    started = capture.header.started
    for record in capture.records():
        if isinstance(record, Request):
            yield started + record.arrival, record


def _frame(batch: list[tuple[float, Request]]) -> pl.DataFrame:
    content = {
        "arrival_s": [arrival for arrival, _ in batch],
        "prompt_tokens": [request.prompt for _, request in batch],
        "output_tokens": [request.output for _, request in batch],
        "prefix_blocks": [np.frombuffer(request.blocks, dtype="<u8") for _, request in batch],
        "request_class": [request.name for _, request in batch],
    }
    frame = pl.DataFrame(content, schema={name: COLUMNS[name] for name in content})
    return frame.with_columns(output_kind=pl.lit("known", dtype=pl.Enum(OUTPUT_KINDS)))
