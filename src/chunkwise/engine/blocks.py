"""Ids for a prompt's blocks that say "same as before" and nothing else.

vLLM's own hashes cover a block and all that precedes it. They are hashed again
with a random key that exists only in this object, so that nobody can test a
guess against a capture, nor find the same prompt in two captures.
"""

import secrets
from hashlib import blake2b

BYTES = 8


class BlockIds:
    """Usage: `BlockIds()(request.block_hashes)` returns eight bytes a block."""

    def __init__(self) -> None:
        self._keyed = blake2b(key=secrets.token_bytes(32), digest_size=BYTES)

    def __call__(self, hashes: list[bytes]) -> bytes:
        """Return the ids, one after another."""
        ids = []
        for content in hashes:
            keyed = self._keyed.copy()
            keyed.update(content)
            ids.append(keyed.digest())
        return b"".join(ids)
