"""A clock that stands still until it is set, in place of the machine's, for a scheduler.

Schedulers stamp events and time steps. On a virtual clock those must be virtual
too, or a plug-in would learn how fast this machine simulates. Invariant: only
the modules of the scheduler's own classes, and ours, see it; it is taken away
again however the block ends; the rest of the process keeps the real time.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

OURS = ("chunkwise.engine.", "chunkwise.pacing.")
CLOCKS = (time.monotonic, time.time, time.perf_counter)


class VirtualTime:
    """Seconds that go on when told. Usage: `clock.now = 1.5`."""

    __slots__ = ("now",)

    def __init__(self, now: float = 0.0):
        self.now = now

    def read(self) -> float:
        """Return the seconds, as `time.monotonic` would."""
        return self.now


class _TimeModule(ModuleType):
    """Stands for `time` inside a module: the clocks are virtual, the rest is real."""

    def __init__(self, clock: VirtualTime):
        super().__init__("time")
        self.monotonic = self.time = self.perf_counter = clock.read

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@contextmanager
def seen_by(scheduler: Any, clock: VirtualTime) -> Iterator[None]:
    """Let the scheduler's modules see the clock. Usage: `with seen_by(scheduler, clock): …`."""
    stand_in = _TimeModule(clock)
    replaced: list[tuple[ModuleType, str, Any]] = []
    try:
        for module in _modules(scheduler):
            for name, value in list(vars(module).items()):
                if value is time:
                    setattr(module, name, stand_in)
                elif any(value is clock_function for clock_function in CLOCKS):
                    setattr(module, name, clock.read)
                else:
                    continue
                replaced.append((module, name, value))
        yield
    finally:
        for module, name, value in reversed(replaced):
            setattr(module, name, value)


def _modules(scheduler: Any) -> list[ModuleType]:
    own = {kind.__module__ for kind in type(scheduler).__mro__} - {"builtins", __name__}
    names = {name for name in sys.modules if name.startswith(OURS)} - {__name__}
    return [sys.modules[name] for name in sorted(own | names) if name in sys.modules]
