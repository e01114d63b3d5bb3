"""What is installed here, asked of vLLM itself (runs inside `child.py`)."""

import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from chunkwise.engine import compat


def run(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Report device, defaults and capabilities."""
    yield {
        "event": "environment",
        "device": compat.platform_name(),
        "cpu": platform.machine(),
        "defaults": [asdict(item) for item in compat.defaults()],
        "capabilities": [asdict(item) for item in compat.capabilities()],
        "removed": sorted(set(compat.REMOVED) - compat.accepted_arguments()),
    }
