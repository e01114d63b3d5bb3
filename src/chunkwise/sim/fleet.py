"""Many replicas behind a router, each simulated by itself, over the machine's cores.

The router decides first (`router.py`); after that replicas share nothing.
Invariant: the result does not depend on how many processes work on it, and it
comes replica by replica, so that a fleet needs no more memory than is kept.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from chunkwise.cost.step import StepShape
from chunkwise.errors import UserMistake
from chunkwise.measured import Ints, Measured
from chunkwise.settings import Settings
from chunkwise.sim.record import Simulation, Steps
from chunkwise.sim.router import Policy, route
from chunkwise.sim.run import Machine, simulate
from chunkwise.sim.sources import Users
from chunkwise.sim.traffic import Traffic

MOST_NOTES = 5
TYPICAL_BATCH = 16  # decodes beside which a router expects an answer to be made


@dataclass(frozen=True)
class Replica:
    """One engine of a fleet: which requests it got, and what happened."""

    number: int
    requests: Ints
    simulation: Simulation


@dataclass(frozen=True)
class _Task:
    number: int
    requests: Ints
    traffic: Traffic
    settings: Settings
    machine: Machine
    users: Users | None
    scheduler_cls: str | None
    seed: int


def run_fleet(
    traffic: Traffic,
    settings: Settings,
    machine: Machine,
    replicas: int,
    policy: Policy = "round-robin",
    users: Users | None = None,
    scheduler_cls: str | None = None,
    seed: int = 0,
    processes: int | None = None,
) -> Iterator[Replica]:
    """Yield the replicas in order. Usage: `merged(traffic, list(run_fleet(traffic, …)))`."""
    if users is not None and policy != "round-robin":
        raise UserMistake("A closed loop is dealt out in turn: leave the router at round-robin.")
    where = route(traffic, replicas, policy, _estimate(machine))
    tasks = []
    for number in range(replicas):
        mine = np.flatnonzero(where == number)
        if len(mine):
            share = None if users is None else _share(users, number, replicas)
            tasks.append(
                _Task(
                    number,
                    mine,
                    traffic.only(mine),
                    settings,
                    machine,
                    share,
                    scheduler_cls,
                    seed + number,
                )
            )
    workers = min(processes or os.cpu_count() or 1, len(tasks))
    if workers <= 1:
        yield from map(_run, tasks)
        return
    # Not forked: vLLM and its libraries keep threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_quieten) as pool:
        yield from pool.map(_run, tasks, chunksize=max(1, min(8, len(tasks) // (4 * workers))))


def merged(traffic: Traffic, fleet: list[Replica]) -> Simulation:
    """Return the fleet as one simulation: requests in their own order, steps in order of time."""
    sims = [replica.simulation for replica in fleet]
    owners = np.concatenate([replica.requests for replica in fleet])
    counts = np.concatenate([sim.measured.token_counts for sim in sims])
    times = np.concatenate([sim.measured.token_times for sim in sims])
    order = np.argsort(np.repeat(owners, counts), kind="stable")
    back = np.argsort(owners)
    measured = Measured(
        np.concatenate([sim.measured.arrival for sim in sims])[back],
        traffic.prompt,
        counts[back],
        times[order],
        traffic.classes,
    )
    cached = np.concatenate([sim.cached_tokens for sim in sims])[back]
    refused = {
        int(replica.requests[number]): reason
        for replica in fleet
        for number, reason in replica.simulation.refused.items()
    }
    notes = tuple(dict.fromkeys(note for sim in sims for note in sim.notes))[:MOST_NOTES]
    return Simulation(measured, Steps.joined([sim.steps for sim in sims]), cached, refused, notes)


def _quieten() -> None:
    """Of a worker alone: this process's log is its owner's."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


def _run(task: _Task) -> Replica:
    found = simulate(
        task.traffic, task.settings, task.machine, task.users, task.scheduler_cls, task.seed
    )
    return Replica(task.number, task.requests, found)


def _share(users: Users, number: int, replicas: int) -> Users:
    count = users.count // replicas + (number < users.count % replicas)
    return Users(max(1, count), users.think, users.stagger)


def _estimate(machine: Machine) -> Callable[[int, float], float]:
    cost = machine.cost

    def seconds(prompt: int, output: float) -> float:
        decodes = StepShape(decodes=TYPICAL_BATCH, decode_context=TYPICAL_BATCH * prompt)
        return cost.seconds(StepShape.of([(prompt, 0)])) + output * cost.seconds(decodes)

    return seconds
