"""From text to numbers: tokens, characters and block ids of a batch of prompts.

Runs inside a text worker with a model's tokenizer, or in the caller with the
estimate of four characters a token. Invariant: text goes in, only numbers come
out; no prompt is kept or sent on.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from chunkwise.workload.blocks import Counts, Ids, chained

CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Measured:
    """What a batch of prompts came to; one entry per prompt, block ids one after another."""

    tokens: Counts
    characters: Counts
    output_tokens: Counts  # -1 where there was no output text
    block_counts: Counts
    block_ids: Ids


class Reader(Protocol):
    """Turns prompts into ids."""

    def prompts(self, batch: Sequence[Sequence[Any]]) -> list[str]:
        """Return each prompt's text from its parts: plain text, or chat messages."""
        ...

    def ids(self, texts: Sequence[str], whole: Sequence[bool]) -> list[npt.NDArray[np.uint32]]:
        """Return ids per text; `whole` says that the text has its special tokens already."""
        ...

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens each output has."""
        ...

    @property
    def ids_per_token(self) -> int:
        """How many ids make a token: 1, or the characters of an estimated one."""
        ...


def measure(batch: Sequence[dict[str, Any]], reader: Reader, block_size: int) -> Measured:
    """Measure prompts of the form `{"prompt": [part, …], "output": text or None}`."""
    parts = [item["prompt"] for item in batch]
    texts = reader.prompts(parts)
    ids = reader.ids(texts, [has_messages(part) for part in parts])
    counts = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
    flat = np.concatenate(ids).astype(np.uint64) if ids else np.zeros(0, dtype=np.uint64)
    block_ids, block_counts = chained(flat, counts, every=block_size * reader.ids_per_token)
    outputs = [index for index, item in enumerate(batch) if item["output"] is not None]
    output_tokens = np.full(len(batch), -1, dtype=np.int64)
    if outputs:
        output_tokens[outputs] = reader.lengths([batch[index]["output"] for index in outputs])
    return Measured(
        tokens=-(-counts // reader.ids_per_token),
        characters=np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)),
        output_tokens=output_tokens,
        block_counts=block_counts,
        block_ids=block_ids,
    )


def has_messages(parts: Sequence[Any]) -> bool:
    """Whether a prompt has chat messages among its parts."""
    return any(isinstance(part, dict) for part in parts)


class Estimate:
    """Four characters a token, where there is no tokenizer."""

    ids_per_token = CHARACTERS_PER_TOKEN

    def prompts(self, batch: Sequence[Sequence[Any]]) -> list[str]:
        """Join the parts; of messages, what is said (a template is not known)."""
        return ["\n".join(map(_said, parts)) for parts in batch]

    def ids(self, texts: Sequence[str], whole: Sequence[bool]) -> list[npt.NDArray[np.uint32]]:
        """Return the characters' code points."""
        coded = (text.encode("utf-32-le", errors="surrogatepass") for text in texts)
        return [np.frombuffer(code, dtype=np.uint32) for code in coded]

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Return characters ÷ 4, rounded up."""
        return [-(-len(text) // CHARACTERS_PER_TOKEN) for text in texts]


def _said(part: Any) -> str:
    if isinstance(part, str):
        return part
    said = "\n".join(str(message.get("content") or "") for message in part["messages"])
    return said + (json.dumps(part["tools"], ensure_ascii=False) if part.get("tools") else "")
