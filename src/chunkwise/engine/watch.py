"""Notice that the data has changed so much that the decision would be another.

Invariant: each kind of remark is made once; an engine's budget cannot change
after its start, so a remark names the setting for the next one.
"""

from typing import Any

from chunkwise.engine.counters import ChunkingStats
from chunkwise.engine.decide import drift
from chunkwise.verdict import Verdict

KV_NEARLY_FULL = 0.05


class Watch:
    """Usage: `Watch(verdict).look(outputs, stats)` returns what is to be said."""

    def __init__(self, verdict: Verdict):
        self._verdict = verdict
        self._lengths: list[int] = []  # of every prompt so far, as the answers tell them
        self._said: set[str] = set()

    def look(self, outputs: Any, stats: ChunkingStats | None) -> list[str]:
        """Take in the answers of one call and return new remarks."""
        told = []
        for output in outputs if isinstance(outputs, list) else ():
            ids = getattr(output, "prompt_token_ids", None)
            self._lengths += [len(ids)] if ids else []
        change = drift(self._verdict, self._lengths) if self._lengths else None
        if change:
            told += self._once("drift", f"the prompts have changed ({change} next time).")
        if stats is None:
            return told
        if stats.preemptions:
            told += self._once(
                "preemptions",
                f"{stats.preemptions} requests were put back for want of KV cache and computed "
                f"again: lower max_num_seqs or raise gpu_memory_utilization (kv_cache_memory_bytes "
                f"on a CPU); chunking is not the cause.",
            )
        elif stats.kv_headroom < KV_NEARLY_FULL:
            told += self._once(
                "kv",
                f"the KV cache was {1 - stats.kv_headroom:.0%} full: it, not the budget, limits "
                f"how many run at once; raise gpu_memory_utilization (kv_cache_memory_bytes on a "
                f"CPU).",
            )
        return told

    def _once(self, kind: str, sentence: str) -> list[str]:
        if kind in self._said:
            return []
        self._said.add(kind)
        return [sentence]
