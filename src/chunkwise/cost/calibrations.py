"""Fitted costs on disk: one JSON file for a model, device, parallelism and vLLM version.

Invariant: a file is whole or not there (written beside its place, then moved),
and one that is read back is checked: a number out of bounds or a key of another
machine is a sentence, never a wrong price.
"""

import json
import os
import re
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chunkwise.cost.fitted import TERMS, Coefficients, FittedCost, Largest
from chunkwise.cost.step import ErrorQuantiles, Provenance
from chunkwise.errors import UserMistake
from chunkwise.files import read_small

SCHEMA: Literal["chunkwise.calibration/1"] = "chunkwise.calibration/1"
SUFFIX = ".calibration.json"
MAX_FILE_BYTES = 2**20

_Name = Annotated[str, Field(max_length=500)]
_Devices = Annotated[int, Field(ge=1, le=4096)]
_Seconds = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=2**53)]
_Sum = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]
_Products = Annotated[tuple[_Sum, ...], Field(min_length=len(TERMS), max_length=len(TERMS))]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Key(_Strict):
    model: _Name
    device: _Name
    tensor_parallel: _Devices = 1
    pipeline_parallel: _Devices = 1
    vllm: _Name = ""


class _Terms(_Strict):
    fixed: _Seconds
    prefill: _Seconds
    token: _Seconds
    chunk: _Seconds
    pair: _Seconds
    decode: _Seconds
    decode_context: _Seconds


class _Errors(_Strict):
    steps: _Count
    p50: _Share
    p90: _Share
    p95: _Share
    p99: _Share


class _Largest(_Strict):
    prefill_tokens: _Count
    chunks: _Count
    prefill_work: _Sum
    decodes: _Count
    decode_context: _Count


class _File(_Strict):
    schema_: Literal["chunkwise.calibration/1"] = Field(SCHEMA, alias="schema")
    key: _Key
    seconds: _Terms
    error: _Errors
    largest: _Largest
    unknown: Annotated[tuple[_Name, ...], Field(max_length=len(TERMS))] = ()
    notes: Annotated[tuple[_Name, ...], Field(max_length=50)] = ()
    products: Annotated[tuple[_Products, ...], Field(max_length=len(TERMS))] = ()
    scatter: Annotated[tuple[_Share, ...], Field(max_length=1000)] = ()


def home() -> Path:
    """Return where calibrations are kept: `$CHUNKWISE_DIR`, or a folder in the user's cache."""
    if given := os.environ.get("CHUNKWISE_DIR"):
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "chunkwise" / "calibrations"


def place(where: Provenance, folder: Path | None = None) -> Path:
    """Return the file of a model, device, parallelism and vLLM version."""
    parts = (
        Path(where.model).name,
        where.device,
        f"tp{where.tensor_parallel}",
        f"pp{where.pipeline_parallel}",
        f"vllm{where.engine}" if where.engine else "",
    )
    words = (re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-.").lower()[:60] for part in parts)
    return (folder or home()) / ("_".join(word for word in words if word) + SUFFIX)


def save(cost: FittedCost, path: Path | None = None) -> Path:
    """Write a calibration and return where it is. Usage: `save(fit(steps, provenance))`."""
    path = path or place(cost.provenance)
    content = {"schema": SCHEMA, **_content(cost)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(content, file, indent=1)
            Path(beside).replace(path)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UserMistake(f"Cannot write {path}: {error.strerror or error}.") from None
    return path


def load(path: Path) -> FittedCost:
    """Read a calibration. Usage: `load(Path("my.calibration.json"))`."""
    text = read_small(path, MAX_FILE_BYTES, "a calibration")
    try:
        found = _File.model_validate_json(text)
    except ValidationError as error:
        item = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in item["loc"])[:60]
        raise UserMistake(
            f"{path} is not a calibration (`{name}`: {item['msg'].lower()}): make one with "
            f"`chunkwise calibrate`."
        ) from None
    key = found.key
    return FittedCost(
        Coefficients(**found.seconds.model_dump()),
        Provenance(
            "calibration",
            key.model,
            key.device,
            key.tensor_parallel,
            key.pipeline_parallel,
            key.vllm,
            found.notes,
        ),
        ErrorQuantiles(**found.error.model_dump()),
        Largest(**found.largest.model_dump()),
        found.unknown,
        found.products,
        found.scatter,
    )


def find(where: Provenance, folder: Path | None = None) -> FittedCost | None:
    """Return the calibration of exactly this model, device, parallelism and version, if any."""
    path = place(where, folder)
    if not path.is_file():
        return None
    found = load(path)
    same = replace(found.provenance, source=where.source, notes=where.notes) == where
    return found if same else None


def _content(cost: FittedCost) -> dict[str, object]:
    where = cost.provenance
    return {
        "key": {
            "model": where.model,
            "device": where.device,
            "tensor_parallel": where.tensor_parallel,
            "pipeline_parallel": where.pipeline_parallel,
            "vllm": where.engine,
        },
        "seconds": asdict(cost.coefficients),
        "error": asdict(cost.error),
        "largest": asdict(cost.largest),
        "unknown": cost.unknown,
        "notes": where.notes,
        "products": cost.products,
        "scatter": cost.scatter,
    }
