"""Read what a stock vLLM server logs of each step with `--enable-logging-iteration-details`.

vLLM 0.24 and 0.25 log from the engine's process, 0.26 and later from the server's
with `Engine 000:` in front. Invariant: text is hostile and may be torn: a line is
bounded, only a whole iteration counts, engines may be interleaved, colours are
taken off, and one line is in memory at a time. The lines tell how many requests
and tokens a step had and how long it took, never how much context they had.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from chunkwise.errors import UserMistake

LONGEST_LINE = 64 * 1024
_COLOUR = re.compile(rb"\x1b\[[0-9;]{0,16}m")
_ITERATION = re.compile(
    rb"(?:Engine (?P<engine>\d{1,6}): )?Iteration\((?P<index>\d{1,15})\): "
    rb"(?P<chunks>\d{1,9}) context requests, (?P<tokens>\d{1,9}) context tokens, "
    rb"(?P<decodes>\d{1,9}) generation requests, (?P<generated>\d{1,9}) generation tokens, "
    rb"iteration elapsed time: (?P<ms>\d{1,9}\.\d{2}) ms(?P<rest>[^\n]{0,200})"
)
_PROCESS = re.compile(rb"^\(EngineCore(?:_DP(?P<rank>\d{1,6}))?[ _]")
_ENGINE = re.compile(
    rb"V1 LLM engine \(v(?P<version>[^)\s]{1,60})\).{0,80}?model='(?P<model>[^']{1,500})'"
)
_SYNC = (
    re.compile(rb"'async_scheduling': False"),
    re.compile(rb"[Aa]sync(?:hronous)? scheduling (?:will be|is) disabled"),
    re.compile(rb"Disabling asynchronous scheduling"),
    re.compile(rb"\bCPU KV cache (?:usage|size)"),  # a CPU never schedules ahead
)
_ASYNC = re.compile(rb"'async_scheduling': True")


@dataclass(frozen=True, slots=True)
class Iteration:
    """One step, as the log tells it."""

    engine: int
    index: int
    chunks: int
    prefill_tokens: int
    decodes: int
    decode_tokens: int  # more than `decodes` with speculative decoding
    seconds: float


@dataclass(slots=True)
class IterationLog:
    """A log and what it says beside its iterations, known once they are read.

    Usage: `log = IterationLog(Path("server.log")); steps = list(log.iterations())`
    """

    path: Path
    model: str = ""
    version: str = ""
    waits_for_steps: bool | None = field(default=None)
    """Whether a step ends before the next is scheduled; None if the log does not tell."""
    skipped: int = 0
    """Steps of no use: dummies of data parallelism, and those with images or sound."""

    def iterations(self) -> Iterator[Iteration]:
        """Yield the whole iterations of the log, in the order in which they were logged."""
        try:
            with self.path.open("rb") as file:
                while line := file.readline(LONGEST_LINE):
                    yield from self._read(line)
        except OSError as error:
            raise UserMistake(f"Cannot read {self.path}: {error.strerror or error}.") from None

    def _read(self, line: bytes) -> Iterator[Iteration]:
        if b"\x1b" in line:
            line = _COLOUR.sub(b"", line)
        if b"Iteration(" not in line:
            self._remark(line)
            return
        process = _PROCESS.match(line)
        for found in _ITERATION.finditer(line):
            rest = found["rest"]
            if rest.startswith(b" (dummy)") or b"encoder inputs" in rest:
                self.skipped += 1
                continue
            if self.waits_for_steps is None and b"CPU KV cache usage" in rest:
                self.waits_for_steps = True
            engine = found["engine"] or (process and process["rank"]) or b"0"
            yield Iteration(
                int(engine),
                int(found["index"]),
                int(found["chunks"]),
                int(found["tokens"]),
                int(found["decodes"]),
                int(found["generated"]),
                float(found["ms"]) / 1000,
            )

    def _remark(self, line: bytes) -> None:
        if not self.model and (found := _ENGINE.search(line)):
            self.version = found["version"].decode(errors="replace")
            self.model = found["model"].decode(errors="replace")
        if self.waits_for_steps is None:
            if any(pattern.search(line) for pattern in _SYNC):
                self.waits_for_steps = True
            elif _ASYNC.search(line):
                self.waits_for_steps = False
