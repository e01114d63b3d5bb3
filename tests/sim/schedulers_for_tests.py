"""Schedulers that misbehave, to be named by their dotted paths."""

import time
from typing import Any

from chunkwise.engine import compat

SEEN: list[float] = []


def stepped_scheduler(*args: Any, vllm_config: Any, **kwargs: Any) -> Any:
    """vLLM's own under another name: the simulator takes every single step of it."""
    base: Any = compat.stock_scheduler(vllm_config)
    return type("Stepped", (base,), {})(*args, vllm_config=vllm_config, **kwargs)


def stuck_scheduler(*args: Any, vllm_config: Any, **kwargs: Any) -> Any:
    """One that stops scheduling after a few steps."""
    base: Any = compat.stock_scheduler(vllm_config)

    class Stuck(base):  # type: ignore[misc]
        calls = 0

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls > 3:
                self.max_num_scheduled_tokens = 0
            return super().schedule(*args, **kwargs)

    return Stuck(*args, vllm_config=vllm_config, **kwargs)


def clock_reading_scheduler(*args: Any, vllm_config: Any, **kwargs: Any) -> Any:
    """One that notes what time it thinks it is."""
    base: Any = compat.stock_scheduler(vllm_config)
    return type("Reading", (_Reading, base), {})(*args, vllm_config=vllm_config, **kwargs)


class _Reading:
    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(time.monotonic())
        return super().schedule(*args, **kwargs)  # type: ignore[misc]
