"""What each request was promised: by its class, if the operator named one, or the server's.

A request can choose among the classes that exist; it cannot set a target.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

CLASS_ARGUMENT = "chunkwise_class"  # in a request's `vllm_xargs`


@dataclass(frozen=True, slots=True)
class Promise:
    """Seconds to the first token and between tokens; infinity where nothing was promised."""

    ttft: float = inf
    itl: float = inf


class Promises:
    """Usage: `Promises(server, {"batch": Promise()}).of(request).itl`."""

    def __init__(self, server: Promise, classes: Mapping[str, Promise]):
        self._server = server
        self._classes = dict(classes)
        known = {server.itl, *(promise.itl for promise in classes.values())}
        self.one_itl = server.itl if len(known) == 1 else None
        """The inter-token target, if it is the same for all."""
        self.any_itl = any(itl != inf for itl in known)

    def of(self, request: Any) -> Promise:
        """Return what this request was promised."""
        name = class_of(request)
        return self._server if name is None else self._classes.get(name, self._server)


def class_of(request: Any) -> str | None:
    """Return the class that a request names, whatever it may be."""
    extra = getattr(request.sampling_params, "extra_args", None) or {}
    named = extra.get(CLASS_ARGUMENT)
    return named if isinstance(named, str) else None
