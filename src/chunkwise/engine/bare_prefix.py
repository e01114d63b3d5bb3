"""Block hashes for prompts that have no text: equal where the trace says they are equal.

vLLM's prefix cache knows blocks by hashes only, and takes the function that
makes them with each request. A trace names a prompt's blocks by ids that cover
everything before them, so the hash of a block is the id of the trace's block
that its last token lies in, and the place in it. What no id covers (a prompt's
tail, everything generated) is hashed as the request's own and never hits.
Invariant: two hashes are equal exactly if the trace's ids say that both prompts
are equal up to the block's end.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Prefix(NamedTuple):
    """The first blocks of a prompt, by ids that cover all that precedes them."""

    ids: npt.NDArray[np.uint64]
    block: int  # tokens in each


class MadeUpHashes:
    """A block hasher as vLLM's requests take one; `begin` goes before each new request."""

    def __init__(self, size: int):
        self._size = size
        self._prompt: list[bytes] = []

    def begin(self, prompt: int, prefix: Prefix | None) -> None:
        """Make ready the hashes of the prompt of the request that is built next."""
        self._prompt = [] if prefix is None else shared_hashes(prompt, prefix, self._size)

    def __call__(self, request: Any) -> list[bytes]:
        """Return the hashes of the blocks that have become full."""
        known = len(request.block_hashes)
        full = request.num_tokens // self._size
        if full <= known:
            return []
        first: list[bytes] = []
        if not known:
            first, self._prompt = self._prompt, []
        # Longer than the shared ones' sixteen bytes, hence never equal to one.
        own = request.request_id.rjust(12)
        return first + [b"%s %9d" % (own.encode(), n) for n in range(known + len(first), full)]


def shared_hashes(prompt: int, prefix: Prefix, size: int) -> list[bytes]:
    """Return the hashes of the full blocks of `size` that the ids cover."""
    covered = min(prompt, len(prefix.ids) * prefix.block) // size
    last = (np.arange(covered, dtype=np.uint64) + np.uint64(1)) * np.uint64(size) - np.uint64(1)
    block = np.uint64(prefix.block)
    pairs = np.empty((covered, 2), dtype=np.uint64)
    pairs[:, 0] = prefix.ids[last // block]
    pairs[:, 1] = last % block
    raw = pairs.tobytes()
    return [raw[start : start + 16] for start in range(0, len(raw), 16)]
