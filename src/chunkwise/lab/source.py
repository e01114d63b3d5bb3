"""Where a comparison's requests come from, and which of them a round gets.

Invariant: a round's requests follow from the source and a seed alone, so that
every arm of a round is sent the same, a resumed comparison goes on as it would
have, and rounds differ in their requests but not in their statistics.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from chunkwise.errors import UserMistake
from chunkwise.lab.load import Request
from chunkwise.readers.capture import is_capture
from chunkwise.workload.layouts import DEFAULT_BLOCK
from chunkwise.workload.measure import Measured
from chunkwise.workload.profile import Profile, is_profile
from chunkwise.workload.readers import open_file
from chunkwise.workload.synthesis import synthesize
from chunkwise.workload.text_workload import Meter, Reading
from chunkwise.workload.tokens import Batch, TokenPool, find_tokenizer
from chunkwise.workload.workload import Workload

MOST_READ = 20_000  # requests: text stays in memory for the whole comparison
UNKNOWN_OUTPUT = 128  # tokens, where the source does not say
MIXED = "mixed"
# The built-in mixture: chat, and now and then a document.
LONG_SHARE, SHORTEST_LONG, LONGEST_LONG = 0.12, 3_000, 7_000
CHAT_PROMPT, CHAT_SPREAD, LONGEST_CHAT = 180, 0.8, 1_024
OUTPUT, OUTPUT_SPREAD, LONGEST_OUTPUT = 90, 0.6, 300


@dataclass(frozen=True)
class Source:
    """Requests to draw from. Usage: `open_source("mixed", model).fitting(8192).draw(100, seed)`."""

    words: str  # for people
    draw: Callable[[int, int], list[Request]]  # how many, seed
    timed: bool = False  # the requests have arrival times of their own
    block_size: int = DEFAULT_BLOCK
    context: int | None = None

    def fitting(self, context: int) -> "Source":
        """Leave out what the model cannot take."""
        return replace(self, context=context)

    def round(self, n: int, seed: int, rate: float | None, users: int | None) -> list[Request]:
        """Return a round's requests: at a rate (Poisson), by users, or as recorded."""
        found = self.draw(n, seed)
        if self.context is not None:
            found = [one for one in found if one.prompt_tokens + one.output_tokens <= self.context]
        if not found:
            raise UserMistake(
                f"No request of {self.words} fits the model's {self.context:,} tokens: take a "
                f"model with a longer context."
            )
        if users is not None:
            return [replace(one, at=0.0) for one in found]
        if rate is None:
            return [replace(one, at=one.at - found[0].at) for one in found]
        gaps = np.random.default_rng([seed, 1]).exponential(1.0, len(found))
        gaps[0] = 0.0
        at = np.cumsum(gaps) * (len(found) - 1) / max(1e-9, gaps.sum() * rate)
        return [replace(one, at=float(when)) for one, when in zip(found, at, strict=True)]


def fingerprint(requests: Sequence[Request]) -> str:
    """Return a short name for a round's requests, to tell whether a source has changed."""
    rows = json.dumps([asdict(request) for request in requests], sort_keys=True, default=str)
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


def open_source(place: str, model: str, columns: tuple[str, ...] | None = None) -> Source:
    """Open what a person names: `mixed`, a trace, text, a capture, or a saved profile."""
    if place == MIXED:
        words = (
            f"chat with {LONG_SHARE:.0%} prompts of {SHORTEST_LONG:,} to {LONGEST_LONG:,} tokens"
        )
        return Source(words, mixed)
    path = Path(place).expanduser()
    if not (path.is_file() or is_capture(path)):
        raise UserMistake(
            f"There is no file or capture at {place[:200]}: name a file, a capture's folder, or "
            f"`{MIXED}`."
        )
    if is_profile(path):
        profile = Profile.load(path)
        made = synthesize(profile, 1)
        return Source(
            f"requests like those of {path.name}",
            lambda n, seed: list(_requests(synthesize(profile, n, seed), None)),
            "arrival_s" in made.columns,
            made.block_size,
        )
    with ExitStack() as stack:
        kept = _Kept(lambda: stack.enter_context(TokenPool(find_tokenizer(model), DEFAULT_BLOCK)))
        workload = open_file(path, path.name, Reading(columns=columns, meter=lambda: kept))
        requests: list[Request] = []
        for request in _requests(workload, kept):
            requests.append(request)
            if len(requests) >= MOST_READ:
                break
    if not requests:
        raise UserMistake(f"{place} holds no requests.")
    timed = "arrival_s" in workload.columns
    words = f"{workload.name} ({workload.layout}, {len(requests):,} requests read)"
    return Source(words, _recorded(requests, timed), timed, workload.block_size)


def mixed(n: int, seed: int) -> list[Request]:
    """Make chat with a few documents among it; their number is the same for every seed."""
    rng = np.random.default_rng([seed, 0])
    long = round(n * LONG_SHARE)
    # A number in each n-th of the distribution: rounds differ, their statistics hardly do.
    spread = rng.permutation((np.arange(n - long) + rng.random(n - long)) / max(1, n - long))
    chat = np.exp(CHAT_SPREAD * _normal(spread)) * CHAT_PROMPT
    documents = SHORTEST_LONG + (LONGEST_LONG - SHORTEST_LONG) * (
        (np.arange(long) + rng.random(long)) / max(1, long)
    )
    lengths = np.concatenate([np.clip(chat, 16, LONGEST_CHAT), documents]).astype(int)
    spread = rng.permutation((np.arange(n) + rng.random(n)) / n)
    outputs = np.clip(np.exp(OUTPUT_SPREAD * _normal(spread)) * OUTPUT, 8, LONGEST_OUTPUT)
    kinds = ["chat"] * (n - long) + ["long"] * long
    return [
        Request(0.0, int(lengths[index]), int(outputs[index]), kinds[index])
        for index in rng.permutation(n)
    ]


def _normal(uniform: Any) -> Any:
    from statistics import NormalDist

    return np.array([NormalDist().inv_cdf(float(one)) for one in uniform])


def _recorded(requests: list[Request], timed: bool) -> Callable[[int, int], list[Request]]:
    def draw(n: int, seed: int) -> list[Request]:
        rng = np.random.default_rng([seed, 0])
        if timed:  # a stretch of the recording: bursts and reuse stay as they were
            first = int(rng.integers(0, max(1, len(requests) - n + 1)))
            return requests[first : first + n]
        chosen = rng.permutation(len(requests))[:n]
        return [requests[index] for index in chosen]

    return draw


class _Kept:
    """A meter that lets a batch's text through beside its numbers."""

    def __init__(self, meter: Callable[[], Meter]) -> None:
        self._meter = meter
        self.batch: Batch = ()

    def measured(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Measured]]:
        """Yield each batch with its numbers; `batch` holds the same one's text."""
        for batch, numbers in self._meter().measured(batches):
            self.batch = batch
            yield batch, numbers


def _requests(workload: Workload, kept: _Kept | None) -> Iterator[Request]:
    for frame in workload.batches():
        text = kept.batch if kept is not None else ()
        for index, row in enumerate(frame.iter_rows(named=True)):
            yield Request(
                at=float(row.get("arrival_s") or 0.0),
                prompt_tokens=max(1, row["prompt_tokens"]),
                output_tokens=max(1, row.get("output_tokens") or UNKNOWN_OUTPUT),
                kind=row.get("request_class") or "",
                blocks=() if text else tuple(row.get("prefix_blocks") or ()),
                parts=tuple(text[index]["prompt"]) if text else None,
            )
