"""The servers of a comparison: who is up, who is warm, who died.

Invariant: no arm is measured on a server that was not warmed up since it
started, and where servers may not stand side by side (on a GPU they would share
its memory), at most one of ours is up. Leaving the `with` block stops all.
"""

from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self

from chunkwise.lab.arms import Arm
from chunkwise.lab.server import Given, Server

MOST_DEATHS = 1  # of one arm: the first may be an accident


class Fleet:
    """Usage: `with Fleet(model, common, together=True) as fleet: fleet.ready(arm, warm_up)`."""

    def __init__(self, model: str, common: tuple[str, ...], together: bool):
        self.together = together
        self._model, self._common = model, common
        self._up: dict[str, Server | Given] = {}
        self._warm: set[str] = set()
        self._deaths: Counter[str] = Counter()

    def begin(self, arm: Arm) -> Server | Given:
        """Start an arm's server, if it is not up, without waiting for it."""
        if arm.name not in self._up:
            if arm.url is not None:
                self._up[arm.name] = Given(arm.name, arm.url)
            else:
                if not self.together:
                    self.stop_all()
                args = (*self._common, *arm.args)
                self._up[arm.name] = Server(arm.name, self._model, args, arm.environment)
        return self._up[arm.name]

    def ready(self, arm: Arm, warm_up: Callable[[Server | Given], None]) -> Server | Given:
        """Return the arm's server, healthy and warm."""
        server = self.begin(arm)
        if arm.name not in self._warm:
            server.wait_healthy()
            warm_up(server)
            self._warm.add(arm.name)
        return server

    def lost(self, arm: Arm, what: str) -> None:
        """Note that an arm's server died; the second time, raise the sentence."""
        trouble = self._up[arm.name].death(what)
        self.stop(arm, keep_log=True)
        self._deaths[arm.name] += 1
        if self._deaths[arm.name] > MOST_DEATHS or arm.url is not None:
            raise trouble

    def stop(self, arm: Arm, keep_log: bool = False) -> None:
        """Stop an arm's server, if it is up."""
        if arm.name in self._up:
            self._up.pop(arm.name).stop(keep_log)
        self._warm.discard(arm.name)

    def stop_all(self, keep_logs: bool = False) -> None:
        """Stop every server that we started."""
        self._warm.clear()
        while self._up:
            self._up.popitem()[1].stop(keep_logs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop_all(keep_logs=kind is not None)  # a sentence may have named one
