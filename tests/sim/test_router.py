"""Who gets a request: from the router's own account alone."""

from dataclasses import replace

import numpy as np
import pytest

from chunkwise.errors import UserMistake
from chunkwise.sim.router import route
from chunkwise.sim.traffic import Shared, Traffic


def seconds(prompt: int, output: float) -> float:
    return prompt / 1000 + output / 100


def test_round_robin_takes_turns() -> None:
    assert route(Traffic.made(10, 10, 7), 3, "round-robin", seconds).tolist() == [
        *(0, 1, 2, 0, 1, 2, 0)
    ]


def test_least_tokens_levels_long_prompts() -> None:
    rng = np.random.default_rng(0)
    prompt = rng.choice([100, 20_000], 4000, p=[0.9, 0.1])
    traffic = Traffic(prompt, np.full(4000, 10), np.sort(rng.uniform(0, 400, 4000)))
    where = route(traffic, 8, "least-tokens", seconds)
    turns = route(traffic, 8, "round-robin", seconds)

    def worst(chosen: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> float:
        # The most prompt tokens that any replica got within ten seconds.
        arrival = traffic.arrival
        assert arrival is not None
        return max(
            np.bincount((arrival[chosen == n] // 10).astype(int), prompt[chosen == n]).max()
            for n in range(8)
        )

    assert set(where.tolist()) == set(range(8))
    assert worst(where) < worst(turns)


def test_prefix_affinity_keeps_conversations_together_unless_it_is_crowded() -> None:
    ids = np.repeat(np.arange(4), 25)  # four conversations, 25 turns each
    order = np.argsort(np.tile(np.arange(25), 4), kind="stable")
    traffic = Traffic(
        np.full(100, 1000),
        np.full(100, 5),
        np.arange(100) * 2.0,
        Shared(ids[order].astype(np.uint64), np.arange(1, 101), 512),
    )
    where = route(traffic, 4, "prefix", seconds)
    for conversation in range(4):
        assert len(set(where[ids[order] == conversation].tolist())) == 1
    crowded = replace(traffic, arrival=np.zeros(100))
    assert len(set(route(crowded, 4, "prefix", seconds).tolist())) == 4


def test_what_cannot_be_routed_is_said() -> None:
    with pytest.raises(UserMistake, match="arrival times"):
        route(Traffic.made(10, 10, 7), 3, "least-tokens", seconds)
    with pytest.raises(UserMistake, match="at least one replica"):
        route(Traffic.made(10, 10, 7), 0, "round-robin", seconds)
