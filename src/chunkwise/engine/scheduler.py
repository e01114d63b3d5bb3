"""The plug-in: `--scheduler-cls chunkwise.PacedScheduler`.

A thin layer over whichever scheduler vLLM would choose. Invariant: every call
reaches vLLM's own method exactly once, with the arguments it came with, and
returns its result untouched; the pacer may narrow a step before vLLM decides it,
never decide one. What raises in our part makes it step aside for good. With
`CHUNKWISE=off`, or on an engine that was not tested, there is no layer at all:
the object is vLLM's own.
"""

from functools import cache
from typing import Any

from chunkwise.engine import clock, compat
from chunkwise.engine.compat_levers import take_cap_away
from chunkwise.engine.compat_scheduler import why_not
from chunkwise.engine.failopen import log, step_aside
from chunkwise.engine.orders import Orders
from chunkwise.engine.pacer import Pacer
from chunkwise.engine.watch_post import WatchPost
from chunkwise.engine.watcher import Watcher


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
    return layered(base, PacedLayer)


def SimulatedScheduler(*args: Any, vllm_config: Any, **kwargs: Any) -> Any:  # noqa: N802
    """Build what `PacedScheduler` builds, but with nothing written and no thread."""
    built = layered(compat.stock_scheduler(vllm_config), QuietLayer)
    return built(*args, vllm_config=vllm_config, **kwargs)


@cache
def layered(base: Any, layer: Any) -> Any:
    """Return our layer over a class. Usage: `layered(Scheduler, PacedLayer)`."""
    return type(f"Paced{base.__name__}", (layer, base), {})


class PacedLayer:
    """What is laid over vLLM's scheduler.

    `_watcher` is None once we stepped aside, `_pacer` where nothing is paced or no longer.
    """

    _post: WatchPost | None = None
    _watcher: Watcher | None = None
    _pacer: Pacer | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._watch()

    def add_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Queue a request."""
        result = super().add_request(request, *args, **kwargs)  # type: ignore[misc]
        if self._watcher is not None:
            try:
                self._watcher.added(request)
            except Exception as error:
                self._step_aside("note a request", error)
        if self._pacer is not None:
            try:
                self._pacer.added(self.requests[request.request_id])  # type: ignore[attr-defined]
            except Exception as error:
                self._stop_pacing("note a prompt", error)
        return result

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Decide the next step."""
        if self._pacer is not None:
            try:
                self._pacer.set_levers(self)
            except Exception as error:
                self._stop_pacing("decide a step", error)
        try:
            output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        finally:
            if self._pacer is not None:
                try:
                    self._pacer.restore(self)
                    if self._pacer.cap_error is not None:
                        self._stop_pacing("cap a prompt", self._pacer.cap_error)
                except Exception as error:
                    self._stop_pacing("restore the budget", error)
        if self._watcher is not None:
            try:
                self._watcher.scheduled(self, output)
            except Exception as error:
                self._step_aside("read a step", error)
        if self._pacer is not None:
            try:
                self._pacer.scheduled(output)
            except Exception as error:
                self._stop_pacing("follow a step", error)
        return output

    def update_from_output(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Take in a step's result."""
        at = clock.now()  # before vLLM's own work on it
        result = super().update_from_output(scheduler_output, *args, **kwargs)  # type: ignore[misc]
        step = None
        if self._watcher is not None:
            try:
                step = self._watcher.updated(self, scheduler_output, at)
            except Exception as error:
                self._step_aside("time a step", error)
        if step is not None and self._pacer is not None:
            try:
                if (why := self._pacer.ended(scheduler_output, step, at)) is not None:
                    self._eject(why)
            except Exception as error:
                self._stop_pacing("learn from a step", error)
        return result

    def shutdown(self, *args: Any, **kwargs: Any) -> Any:
        """Write down what is still in memory, then stop."""
        self._close()
        return super().shutdown(*args, **kwargs)  # type: ignore[misc]

    def _watch(self) -> None:
        try:
            self._post = self._open(Orders.read())
            self._watcher, self._pacer = self._post.watcher, self._post.pacer
        except Exception as error:
            step_aside("start watching", error, "vLLM runs unwatched")

    def _open(self, orders: Orders) -> WatchPost:
        return WatchPost.open(self, orders)

    def _close(self) -> None:
        if self._pacer is not None:
            self._hand_back("the engine stops")
        post, self._post, self._watcher = self._post, None, None
        if post is not None:
            try:
                post.close()
            except Exception as error:
                step_aside("close its files", error, "the capture may lack its last records")

    def _step_aside(self, doing: str, error: Exception) -> None:
        # The post stays: it writes what it has, and its metrics tell of the failure.
        self._watcher = None
        if self._pacer is not None:
            self._hand_back(doing)
        step_aside(doing, error, "vLLM runs unwatched from here on")

    def _stop_pacing(self, doing: str, error: Exception) -> None:
        self._hand_back(doing)
        step_aside(doing, error, "vLLM decides by itself from here on")

    def _eject(self, why: str) -> None:
        self._hand_back(why)
        log.warning("Chunkwise stops pacing, because %s: vLLM decides by itself from here on.", why)

    def _hand_back(self, why: str) -> None:
        pacer, self._pacer = self._pacer, None
        if pacer is not None:
            try:
                pacer.leave(self, why)
            except Exception:  # whatever it is: this is what vLLM must have back
                self.max_num_scheduled_tokens = pacer.budget
                take_cap_away(self)


class QuietLayer(PacedLayer):
    """The same for the simulator: it decides alike and leaves nothing behind."""

    def _open(self, orders: Orders) -> WatchPost:
        return WatchPost.quiet(self, orders)
