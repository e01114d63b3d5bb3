"""Everything that watches one engine: the watcher in the step's path, the scribe beside it."""

import multiprocessing
import secrets
from pathlib import Path
from typing import Any

from chunkwise import __version__
from chunkwise.cost.fitted import FittedCost
from chunkwise.cost.live import LiveCost
from chunkwise.durations import say
from chunkwise.engine import compat, self_calibration
from chunkwise.engine.capture import CaptureFiles
from chunkwise.engine.compat_levers import levers_of
from chunkwise.engine.compat_scheduler import Sight, engine_index, sight_of
from chunkwise.engine.exporter import Exporter, run_of
from chunkwise.engine.failopen import log
from chunkwise.engine.orders import Orders
from chunkwise.engine.pacer import Pacer
from chunkwise.engine.scribe import Part, Scribe
from chunkwise.engine.self_calibration import Keeper
from chunkwise.engine.watcher import Watcher
from chunkwise.observed import Header


class WatchPost:
    """Usage: `post = WatchPost.open(scheduler, orders)`; `post.watcher` gets the calls."""

    def __init__(
        self,
        watcher: Watcher,
        scribe: Scribe | None = None,
        pacer: Pacer | None = None,
        keeper: Keeper | None = None,
    ):
        self.watcher = watcher
        self.pacer = pacer
        self.keeper = keeper
        self._scribe = scribe

    @classmethod
    def open(cls, scheduler: Any, orders: Orders) -> "WatchPost":
        """Start watching; the one log line says where the records go."""
        sight = sight_of(scheduler)
        scribe = Scribe()
        watcher = Watcher(sight, scribe.put, orders.classes)
        header = _header(scheduler, sight, orders, watcher.wall_started)
        pacer = keeper = None
        if orders.mode == "on":
            start = self_calibration.known(header)
            if start is None:
                start = self_calibration.expected(header, scheduler.vllm_config.model_config)
            pacer = start_pacer(scheduler, orders, watcher, header, start)
        parts: list[Part] = [CaptureFiles(orders.folder, header)]
        parts.append(Exporter(header, None if pacer is None else pacer.counts))
        if pacer is not None:
            pacer.keeper = keeper = Keeper(header)
            parts.append(keeper)
        scribe.start(watcher.record, *parts)
        without = f" without {', '.join(sight.blind)}" if sight.blind else ""
        targets = [
            f"{name} {say(seconds)}"
            for name, seconds in (("TTFT", orders.ttft), ("ITL", orders.itl))
            if seconds is not None
        ]
        log.info(
            "Chunkwise observes this engine%s (%s); records go to %s.",
            without,
            " and ".join(targets) or "no targets",
            orders.folder,
        )
        return cls(watcher, scribe, pacer, keeper)

    @classmethod
    def quiet(cls, scheduler: Any, orders: Orders) -> "WatchPost":
        """Pace as `open` would, but write nothing and start no thread: for the simulator."""
        watcher = Watcher(sight_of(scheduler), lambda record: None, orders.classes)
        header = Header("", "", 0.0, model="simulated")
        pacer = None
        if orders.mode == "on":
            pacer = start_pacer(scheduler, orders, watcher, header, None)
        return cls(watcher, pacer=pacer)

    def close(self) -> None:
        """Write what is left and stop the thread."""
        if self.keeper is not None and self.pacer is not None:
            self.keeper.offer(self.pacer.cost)
        if self._scribe is not None:
            self._scribe.close()


def start_pacer(
    scheduler: Any, orders: Orders, watcher: Watcher, header: Header, start: FittedCost | None
) -> Pacer | None:
    """Begin to pace; None if this vLLM cannot be paced. The one log line says what is promised."""
    levers = levers_of(scheduler)
    if levers is None:
        log.warning("Chunkwise only observes: this vLLM has no step budget that can be lowered.")
        return None
    expected = self_calibration.is_expected(start)
    cost = LiveCost(self_calibration.where(header), start, measured=not expected)
    largest = 0 if start is None or expected else start.largest.prefill_tokens
    pacer = Pacer(scheduler, levers, orders.promises, cost, watcher.prefilling, largest, expected)
    log.info(
        "Chunkwise paces this engine%s, %s.",
        f" without {', '.join(levers.missing)}" if levers.missing else "",
        _begins(start is not None, expected),
    )
    return pacer


def _begins(known: bool, expected: bool) -> str:
    if expected:
        return "from kernel times of such a GPU"
    return "from what it learned before" if known else "from nothing"


def _header(scheduler: Any, sight: Sight, orders: Orders, started: float) -> Header:
    config = scheduler.vllm_config
    resolved = compat.describe(config)
    found = compat.installed()
    capture = secrets.token_hex(6)
    parent = multiprocessing.parent_process()  # None where the engine lives in the caller
    return Header(
        capture=capture,
        run=(parent and parent.pid and run_of(parent.pid)) or capture,
        started=started,
        engine=engine_index(config),
        vllm=found.version if found else "",
        chunkwise=__version__,
        model=Path(str(config.model_config.model)).name,
        device=compat.platform_name(),
        dtype=resolved.dtype,
        tensor_parallel=config.parallel_config.tensor_parallel_size,
        budget=resolved.budget,
        seqs=resolved.seqs,
        threshold=resolved.threshold,
        max_model_len=resolved.max_model_len,
        block_size=sight.block_size,
        kv_blocks=config.cache_config.num_gpu_blocks or 0,
        async_scheduling=resolved.async_scheduling,
        prefix_caching=resolved.prefix_caching,
        classes=orders.classes,
        ttft=orders.ttft,
        itl=orders.itl,
        blind=sight.blind,
    )
