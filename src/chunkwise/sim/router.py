"""Which replica gets a request: what a load balancer decides, from its own estimate.

A router sees requests go out and knows neither the replicas' queues nor how long
an answer will be; it keeps its own account of what each replica has to do.
Invariant: the choice depends on the requests before it and on nothing that
happens inside a replica, so that replicas can be simulated independently.
"""

import heapq
from collections.abc import Callable
from typing import Literal

import numpy as np

from chunkwise.errors import UserMistake
from chunkwise.measured import Ints
from chunkwise.sim.traffic import Traffic

Policy = Literal["round-robin", "least-tokens", "prefix"]
POLICIES: tuple[Policy, ...] = ("round-robin", "least-tokens", "prefix")
# A replica that holds the prefix is left once it has this many times the mean to do.
OVERLOAD = 1.5


def route(
    traffic: Traffic, replicas: int, policy: Policy, seconds: Callable[[int, float], float]
) -> Ints:
    """Return the replica of each request. `seconds` estimates one of a prompt and an output."""
    if replicas < 1:
        raise UserMistake("A fleet needs at least one replica.")
    if policy == "round-robin" or replicas == 1:
        return np.arange(len(traffic), dtype=np.int64) % replicas
    if traffic.arrival is None:
        raise UserMistake(f"Routing by {policy} needs arrival times: give a rate, or round-robin.")
    account = _Account(replicas)
    # Nobody knows an answer's length beforehand; a router has seen their mean.
    output = float(traffic.output.mean())
    holder: dict[int, int] = {}  # the last block of a prefix: who saw it last
    chosen = np.empty(len(traffic), dtype=np.int64)
    arrivals, prompts = traffic.arrival.tolist(), traffic.prompt.tolist()
    for number, (now, prompt) in enumerate(zip(arrivals, prompts, strict=True)):
        account.go_to(now)
        ids: list[int] = []
        if policy == "prefix" and traffic.shared is not None:
            prefix = traffic.shared.of(number)
            ids = [] if prefix is None else prefix.ids.tolist()
        holding = next((holder[block] for block in reversed(ids) if block in holder), None)
        where = account.least()
        if holding is not None and account.bearable(holding):
            where = holding
        holder.update(dict.fromkeys(ids, where))
        account.give(where, prompt + output, now + seconds(prompt, output))
        chosen[number] = where
    return chosen


class _Account:
    """Tokens that each replica still has to do, as far as the router can tell."""

    def __init__(self, replicas: int):
        self._tokens = np.zeros(replicas)
        self._ends: list[tuple[float, int, float]] = []

    def go_to(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, replica, tokens = heapq.heappop(self._ends)
            self._tokens[replica] -= tokens

    def least(self) -> int:
        return int(self._tokens.argmin())

    def bearable(self, replica: int) -> bool:
        return bool(self._tokens[replica] <= OVERLOAD * self._tokens.mean() + 1)

    def give(self, replica: int, tokens: float, end: float) -> None:
        self._tokens[replica] += tokens
        heapq.heappush(self._ends, (end, replica, tokens))
