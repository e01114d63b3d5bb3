"""Driving load: vLLM's benchmark client in a process of its own, fed by us.

One client process serves a whole comparison (loading vLLM takes longer than many
a run). Invariant: what an arm is sent depends on the round's requests alone,
never on the arm; the client's own delay in sending comes back with every run.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from chunkwise.lab.arms import Machine
from chunkwise.lab.child import Child
from chunkwise.measured import Floats, Measured

# A run may take so long before it is given up: a server can hang without dying.
LEAST_SECONDS = 900.0
SLOWEST = 20  # times as long as its arrivals take


@dataclass(frozen=True, slots=True)
class Request:
    """One request to send: `parts` is its text, or it is made from its lengths."""

    at: float  # seconds from the start of the run
    prompt_tokens: int
    output_tokens: int
    kind: str = ""
    blocks: tuple[int, ...] = ()  # equal ids: equal text
    parts: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Played:
    """What came of a run: the answered requests, the client's lag, and what failed."""

    measured: Measured
    lag: Floats
    failed: dict[str, int]


class Client:
    """Usage: `with Client(model) as client: client.start(say); client.play(url, name, asks)`."""

    def __init__(self, model: str, max_model_len: int | None = None):
        spec = {"model": model, "max_model_len": max_model_len}
        self._child = Child("chunkwise.lab.load_inside:run", spec, keep_log=False)

    def start(self, say: Callable[[str, float], None]) -> Machine:
        """Load vLLM there and return what it says of this machine and the model."""
        self._events = self._child.events(say)
        found = next(self._events)
        return Machine(**{**found, "accepted": frozenset(found["accepted"])})

    def play(
        self,
        url: str,
        model: str,
        requests: Sequence[Request],
        *,
        salt: str,
        users: int | None = None,
        block_size: int = 16,
    ) -> Played | None:
        """Send the requests and return what came; None if it took far too long."""
        last = max(request.at for request in requests)
        order = {
            "url": url,
            "model": model,
            "users": users,
            "salt": salt,
            "block_size": block_size,
            "seconds": max(LEAST_SECONDS, SLOWEST * last),
            "requests": [asdict(request) for request in requests],
        }
        self._child.send(order)
        found = next(self._events)
        return None if found["late"] else played(found["outcomes"], requests, users is not None)

    def __enter__(self) -> Self:
        self._child.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.__exit__(kind, error, trace)


def played(
    outcomes: Sequence[Mapping[str, Any]], requests: Sequence[Request], closed: bool
) -> Played:
    """Turn what the client saw into columns, on a clock that starts with the run."""
    sent = np.array([outcome["sent"] for outcome in outcomes])
    plan = np.array([request.at for request in requests])
    # The client says when it sent, not when it began: the promptest request was in time.
    start = float(sent.min() if closed else (sent - plan).min())
    lag = np.zeros(len(sent)) if closed else sent - plan - start
    answered = [index for index, outcome in enumerate(outcomes) if not outcome["error"]]
    arrival = sent - start
    measured = Measured.of(
        arrival=[float(arrival[index]) for index in answered],
        tokens=[
            arrival[index] + np.cumsum([outcomes[index]["ttft"], *outcomes[index]["gaps"]])
            for index in answered
        ],
        prompt_tokens=[outcomes[index]["prompt_tokens"] for index in answered],
        classes=(
            [requests[index].kind for index in answered]
            if any(request.kind for request in requests)
            else None
        ),
    )
    failed = Counter(outcome["error"] for outcome in outcomes if outcome["error"])
    return Played(measured, lag, dict(failed))
