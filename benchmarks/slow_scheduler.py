"""A planted slow-down: vLLM's own scheduler, and every step lasts 15% longer.

For `compare_real.py` only. Usage: `--scheduler-cls slow_scheduler.Slow`
"""

import time
from typing import Any

from chunkwise.engine import compat

SHARE = 0.15


def Slow(*args: Any, vllm_config: Any, **kwargs: Any) -> Any:  # noqa: N802
    """Build it over whichever class vLLM would choose."""
    base: Any = compat.stock_scheduler(vllm_config)

    class SlowScheduler(base):  # type: ignore[misc]
        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            output = super().schedule(*args, **kwargs)
            self._began = time.monotonic()
            return output

        def update_from_output(self, output: Any, *args: Any, **kwargs: Any) -> Any:
            if output.num_scheduled_tokens:
                time.sleep(SHARE * (time.monotonic() - self._began))
            return super().update_from_output(output, *args, **kwargs)

    return SlowScheduler(*args, vllm_config=vllm_config, **kwargs)
