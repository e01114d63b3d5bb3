"""Begin a prompt only if the KV cache has room for it and for what others began.

Small chunks tempt an engine into beginning more prompts than fit: each takes
blocks, none can end, and the engine throws away work (preemption). Invariant:
what has begun may always go on; what begins leaves enough blocks for the rest of
every begun prompt, and one block for each request that generates.
"""

from chunkwise.pacing.job import Job


class Room:
    """Usage: `room = Room(free, promised, decodes); if room.admits(job): room.take(job)`."""

    __slots__ = ("left",)

    def __init__(self, free: int, promised: int, decodes: int):
        self.left = free - promised - decodes

    def admits(self, job: Job) -> bool:
        """Tell whether a job may have tokens."""
        return job.started or job.blocks < self.left

    def take(self, job: Job) -> None:
        """Give a job that begins its blocks."""
        if not job.started:
            self.left -= job.blocks + 1
