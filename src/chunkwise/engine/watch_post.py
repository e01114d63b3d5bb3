"""Everything that watches one engine: the watcher in the step's path, the scribe beside it."""

import multiprocessing
import secrets
from pathlib import Path
from typing import Any

from chunkwise import __version__
from chunkwise.engine import compat
from chunkwise.engine.capture import CaptureFiles
from chunkwise.engine.compat_scheduler import Sight, engine_index, sight_of
from chunkwise.engine.exporter import Exporter, run_of
from chunkwise.engine.failopen import log
from chunkwise.engine.orders import Orders
from chunkwise.engine.scribe import Scribe
from chunkwise.engine.watcher import Watcher
from chunkwise.observed import Header


class WatchPost:
    """Usage: `post = WatchPost.open(scheduler, orders)`; `post.watcher` gets the calls."""

    def __init__(self, watcher: Watcher, scribe: Scribe):
        self.watcher = watcher
        self._scribe = scribe

    @classmethod
    def open(cls, scheduler: Any, orders: Orders) -> "WatchPost":
        """Start watching; the one log line says where the records go."""
        sight = sight_of(scheduler)
        scribe = Scribe()
        watcher = Watcher(sight, scribe.put, orders.classes)
        header = _header(scheduler, sight, orders, watcher.wall_started)
        files = CaptureFiles(orders.folder, header)
        scribe.start(watcher.record, files, Exporter(header))
        without = f" without {', '.join(sight.blind)}" if sight.blind else ""
        targets = [
            f"{name} {seconds * 1e3:g}ms"
            for name, seconds in (("TTFT", orders.ttft), ("ITL", orders.itl))
            if seconds is not None
        ]
        log.info(
            "Chunkwise observes this engine%s (%s); records go to %s.",
            without,
            " and ".join(targets) or "no targets",
            orders.folder,
        )
        return cls(watcher, scribe)

    def close(self) -> None:
        """Write what is left and stop the thread."""
        self._scribe.close()


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
