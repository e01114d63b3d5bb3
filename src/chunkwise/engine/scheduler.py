"""The plug-in: `--scheduler-cls chunkwise.PacedScheduler`.

A thin layer over whichever scheduler vLLM would choose. Invariant: every call
reaches vLLM's own method exactly once, with the arguments it came with, and
returns its result untouched; what raises in our part makes the plug-in step
aside for good. With `CHUNKWISE=off`, or on an engine that was not tested, there
is no layer at all: the object is vLLM's own.
"""

from functools import cache
from typing import Any

from chunkwise.engine import clock, compat
from chunkwise.engine.compat_scheduler import why_not
from chunkwise.engine.failopen import log, step_aside
from chunkwise.engine.orders import Orders
from chunkwise.engine.watch_post import WatchPost


def PacedScheduler(*args: Any, vllm_config: Any, **kwargs: Any) -> Any:  # noqa: N802
    """Build the scheduler that vLLM asks for by its dotted name."""
    base: Any = compat.stock_scheduler(vllm_config)
    built: Any = base
    try:
        built = _chosen(base, vllm_config, kwargs.get("kv_cache_config"))
    except Exception as error:  # whatever it is, the server has to start
        step_aside("look at this engine", error, "vLLM's own scheduler runs")
    return built(*args, vllm_config=vllm_config, **kwargs)


def _chosen(base: Any, vllm_config: Any, kv_cache_config: Any) -> Any:
    orders = Orders.read()
    for remark in orders.remarks:
        log.warning("Chunkwise: %s", remark)
    if orders.mode == "off":
        return base
    reason = why_not(vllm_config, kv_cache_config)
    if reason is not None:
        log.warning("Chunkwise leaves this engine to vLLM: %s.", reason)
        return base
    return layered(base)


@cache
def layered(base: Any) -> Any:
    """Return the class: our layer over the given one. Usage: `layered(Scheduler)`."""
    return type(f"Paced{base.__name__}", (PacedLayer, base), {})


class PacedLayer:
    """What is laid over vLLM's scheduler; `_post` is None once we stepped aside."""

    _post: WatchPost | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        try:
            self._post = WatchPost.open(self, Orders.read())
        except Exception as error:
            step_aside("start watching", error, "vLLM runs unwatched")

    def add_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Queue a request."""
        result = super().add_request(request, *args, **kwargs)  # type: ignore[misc]
        if self._post is not None:
            try:
                self._post.watcher.added(request)
            except Exception as error:
                self._step_aside("note a request", error)
        return result

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Decide the next step."""
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        if self._post is not None:
            try:
                self._post.watcher.scheduled(self, output)
            except Exception as error:
                self._step_aside("read a step", error)
        return output

    def update_from_output(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Take in a step's result."""
        post = self._post
        at = 0.0 if post is None else clock.now()
        result = super().update_from_output(scheduler_output, *args, **kwargs)  # type: ignore[misc]
        if post is not None:
            try:
                post.watcher.updated(self, scheduler_output, at)
            except Exception as error:
                self._step_aside("time a step", error)
        return result

    def shutdown(self, *args: Any, **kwargs: Any) -> Any:
        """Write down what is still in memory, then stop."""
        self._close()
        return super().shutdown(*args, **kwargs)  # type: ignore[misc]

    def _step_aside(self, doing: str, error: Exception) -> None:
        step_aside(doing, error, "vLLM runs unwatched from here on")
        self._close()

    def _close(self) -> None:
        post, self._post = self._post, None
        if post is not None:
            try:
                post.close()
            except Exception as error:
                step_aside("close its files", error, "the capture may lack its last records")
