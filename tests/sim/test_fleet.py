"""Fleets: the same result however many processes made it."""

import os

import numpy as np
import pytest

from chunkwise.errors import UserMistake
from chunkwise.settings import Settings
from chunkwise.sim.fleet import merged, run_fleet
from chunkwise.sim.run import Machine, simulate
from chunkwise.sim.sources import Users
from chunkwise.sim.traffic import Traffic

pytestmark = pytest.mark.engine
SMALL = Settings(max_num_batched_tokens=256, max_num_seqs=16)


def test_processes_do_not_change_the_result(machine: Machine) -> None:
    traffic = Traffic.made(400, 30, 60, 0.8, seed=4).at_rate(20.0)
    one, two = (
        merged(
            traffic,
            list(run_fleet(traffic, SMALL, machine, 3, "least-tokens", processes=processes)),
        )
        for processes in (1, 2)
    )
    assert one.measured.token_times.tobytes() == two.measured.token_times.tobytes()
    assert one.steps.start.tobytes() == two.steps.start.tobytes()
    assert (one.measured.token_counts == traffic.output).all()
    assert one.measured.prompt_tokens.tolist() == traffic.prompt.tolist()


def test_a_fleet_of_one_is_the_engine_itself(machine: Machine) -> None:
    traffic = Traffic.made(400, 30, 20, 0.8, seed=4).at_rate(20.0)
    before = dict(os.environ)
    fleet = merged(traffic, list(run_fleet(traffic, SMALL, machine, 1)))
    assert dict(os.environ) == before  # our log level is nobody else's
    alone = simulate(traffic, SMALL, machine)
    assert fleet.measured.token_times.tobytes() == alone.measured.token_times.tobytes()


def test_users_are_dealt_out(machine: Machine) -> None:
    traffic = Traffic.made(100, 5, 21)
    fleet = list(run_fleet(traffic, SMALL, machine, 4, users=Users(6), processes=1))
    running = [int(replica.simulation.steps.running.max()) for replica in fleet]
    assert running == [2, 2, 1, 1]
    assert sum(len(replica.requests) for replica in fleet) == 21
    with pytest.raises(UserMistake, match="dealt out in turn"):
        list(run_fleet(traffic, SMALL, machine, 2, "prefix", Users(2)))


def test_more_replicas_than_requests(machine: Machine) -> None:
    traffic = Traffic(np.array([5]), np.array([2]), np.array([0.0]))
    assert len(list(run_fleet(traffic, SMALL, machine, 3))) == 1
