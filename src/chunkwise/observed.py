"""What the plug-in wrote down of a live server: one record a step, one a request.

A capture is JSON lines: a header first, then records in the order in which they
came. Invariant: a record holds numbers and names from a fixed list, never text,
token ids or a request's id; block ids are keyed hashes whose key is never
written. Times are seconds since the header's `started`, on one steady clock.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

SCHEMA = "chunkwise.capture/1"
SUFFIX = ".capture.jsonl.gz"
REASONS = ("stop", "length", "abort", "error", "repetition", "other")
OTHER = "other"  # the class of a request that names none of the configured ones


class Chunk(NamedTuple):
    """Prefill tokens of one request in one step, and the context before them."""

    request: int
    tokens: int
    context: int


class Step(NamedTuple):
    """One engine step that carried tokens."""

    number: int
    end: float
    seconds: float
    chunks: tuple[Chunk, ...] = ()
    decodes: int = 0
    decode_tokens: int = 0  # more than `decodes` only with speculative decoding
    decode_context: int = 0  # sum over the decodes, before this step
    kv: float = 0.0  # share of the KV cache in use
    running: int = 0
    waiting: int = 0
    ended: tuple[int, ...] = ()  # requests whose prefill ended here: they get a token
    held: tuple[int, ...] = ()  # decodes that were running and got nothing
    preempted: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """What it carried: `prefill`, `mixed` or `decode`."""
        if not self.chunks:
            return "decode"
        return "mixed" if self.decodes else "prefill"

    @property
    def prefill_tokens(self) -> int:
        """Tokens of all its chunks."""
        return sum(chunk.tokens for chunk in self.chunks)

    @property
    def chunk_sizes(self) -> list[tuple[int, int]]:
        """Chunks as (new tokens, context before): what a cost model is fitted to."""
        return [(chunk.tokens, chunk.context) for chunk in self.chunks]


class Request(NamedTuple):
    """One request, from its arrival to its end."""

    number: int
    arrival: float
    prompt: int
    output: int
    cached: int  # prompt tokens found in the prefix cache when it first ran
    chunks: int
    preemptions: int
    priority: int
    name: str  # its class
    scheduled: float | None  # when it first ran; None if it never did
    first_token: float | None
    end: float
    first_step: int | None  # the step that gave the first token
    last_step: int | None
    reason: str
    blocks: bytes = b""  # eight bytes for each full block of the prompt


@dataclass(frozen=True, slots=True)
class Header:
    """What the engine was when it was watched."""

    capture: str  # one start of one engine; its parts share it
    run: str  # one start of a server; its engines share it
    started: float  # seconds since 1970
    engine: int = 0
    part: int = 1
    vllm: str = ""
    chunkwise: str = ""
    model: str = ""
    device: str = ""
    dtype: str = ""
    tensor_parallel: int = 1
    budget: int = 0
    seqs: int = 0
    threshold: int = 0
    max_model_len: int = 0
    block_size: int = 16
    kv_blocks: int = 0
    async_scheduling: bool = False
    prefix_caching: bool = False
    classes: tuple[str, ...] = ()
    ttft: float | None = None
    itl: float | None = None
    blind: tuple[str, ...] = ()  # what this vLLM did not let us see


Record = Step | Request


def header_line(header: Header) -> dict[str, Any]:
    """Return the first line of a file."""
    return {"schema": SCHEMA, **asdict(header)}


def parse_header(line: Mapping[str, Any]) -> Header:
    """Read a first line; `ValueError` if it is not one of ours."""
    if line.get("schema") != SCHEMA:
        raise ValueError(f"its first line does not say {SCHEMA}")
    known = {field.name: line[field.name] for field in fields(Header) if field.name in line}
    for name in ("classes", "blind"):
        known[name] = tuple(str(item)[:64] for item in known.get(name, ()))
    header = Header(**known)
    for name in ("started", "budget", "seqs", "block_size", "engine", "part", "kv_blocks"):
        if not _number(getattr(header, name)):
            raise ValueError(f"its `{name}` is not a number")
    if not 1 <= header.block_size <= 65_536:
        raise ValueError("its `block_size` is not between 1 and 65,536")
    return header


def line_of(record: Record) -> dict[str, Any]:
    """Return a record as the line that is written; what is empty is left out."""
    if isinstance(record, Step):
        kept = {name: value for name, value in record._asdict().items() if value not in (0, ())}
        return {"step": record.number, **_rounded(kept, "number")}
    line = {name: value for name, value in record._asdict().items() if value is not None}
    if record.blocks:
        line["blocks"] = b64encode(record.blocks).decode()
    else:
        del line["blocks"]
    return {"request": record.number, **_rounded(line, "number")}


def parse(line: Mapping[str, Any]) -> Record | None:
    """Read a line; None for a remark, `ValueError` for what is not a record."""
    try:
        if "step" in line:
            return _step(line)
        if "request" in line:
            return _request(line)
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"{type(error).__name__} in a record") from None
    return None


def _step(line: Mapping[str, Any]) -> Step:
    found = Step(
        number=_count(line["step"]),
        end=_time(line["end"]),
        seconds=_time(line.get("seconds", 0)),
        chunks=tuple(_chunk(chunk) for chunk in line.get("chunks", ())),
        decodes=_count(line.get("decodes", 0)),
        decode_tokens=_count(line.get("decode_tokens", 0)),
        decode_context=_count(line.get("decode_context", 0)),
        kv=_time(line.get("kv", 0)),
        running=_count(line.get("running", 0)),
        waiting=_count(line.get("waiting", 0)),
        ended=_whole(line.get("ended", ())),
        held=_whole(line.get("held", ())),
        preempted=_whole(line.get("preempted", ())),
    )
    if found.seconds < 0:
        raise ValueError("a step with negative seconds")
    return found


def _request(line: Mapping[str, Any]) -> Request:
    def time(name: str) -> float | None:
        return None if line.get(name) is None else _time(line[name])

    def step(name: str) -> int | None:
        return None if line.get(name) is None else _count(line[name])

    blocks = b64decode(line.get("blocks", ""), validate=True)
    if len(blocks) % 8:
        raise ValueError("block ids that are not eight bytes each")
    return Request(
        number=_count(line["request"]),
        arrival=_time(line["arrival"]),
        prompt=_count(line["prompt"]),
        output=_count(line["output"]),
        cached=_count(line["cached"]),
        chunks=_count(line["chunks"]),
        preemptions=_count(line["preemptions"]),
        priority=int(_time(line["priority"])),
        name=str(line["name"])[:64],
        scheduled=time("scheduled"),
        first_token=time("first_token"),
        end=_time(line["end"]),
        first_step=step("first_step"),
        last_step=step("last_step"),
        reason=line["reason"] if line["reason"] in REASONS else OTHER,
        blocks=blocks,
    )


def _rounded(line: dict[str, Any], dropped: str) -> dict[str, Any]:
    return {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in line.items()
        if name != dropped
    }


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e15


def _time(value: Any) -> float:
    if not _number(value) or value != value:
        raise ValueError("a time that is not a number")
    return float(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError("a count that is not a whole number from 0")
    return value


def _whole(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(_count(value) for value in values)


def _chunk(values: Iterable[Any]) -> Chunk:
    request, tokens, context = _whole(values)
    return Chunk(request, tokens, context)
