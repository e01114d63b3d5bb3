"""Our mistakes are never the server's: the first one makes us step aside.

Invariant: whatever of ours raises, vLLM's own call has been or will be made
exactly once and its result is returned; from then on the plug-in does nothing,
and the log has one line that says why.
"""

import logging

# Below vLLM's logger, so that our lines look like its own and go where they go.
log = logging.getLogger("vllm.chunkwise")
BROKEN_PARTS: list[str] = []  # of this process, for the metrics


def step_aside(doing: str, error: BaseException, consequence: str) -> None:
    """Log the one line for a part of ours that failed."""
    BROKEN_PARTS.append(doing)
    reason = str(error).splitlines()[:1]
    log.warning(
        "Chunkwise could not %s (%s%s): %s. Requests are not affected.",
        doing,
        type(error).__name__,
        f": {reason[0][:200]}" if reason else "",
        consequence,
    )
