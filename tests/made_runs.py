"""Made-up runs with known differences, for the tests of lab/ and report/."""

from typing import Any

import numpy as np

from chunkwise.lab.runs import Run
from chunkwise.measured import Measured

TWIN = "default (twin)"


def asked(*arms: str, **more: Any) -> dict[str, Any]:
    """What a comparison of `default` with these arms was asked for."""
    names = ("default", TWIN, *arms)
    return {
        "command": ["chunkwise", "compare", "mixed", "--server", "--seed 1"],
        "model": "m",
        "arms": {name: {"said": name, "settings": {}} for name in names},
        "baseline": "default",
        "twin": TWIN,
        "load": {"rate": 10},
        "promise": {"ttft": 0.5, "itl": 0.05},
        "rule": {"least_rounds": 5, "most_rounds": 12, "precision": 0.05, "seconds": None},
        "environment": {"vllm": "0"},
        "together": True,
        **more,
    }


def run(arm: str, number: int, slower: float = 1.0, noise: float = 0.02, **more: Any) -> Run:
    """24 requests, one in eight long; the same arrivals in every arm of a round."""
    round_rng = np.random.default_rng(number)
    own = np.random.default_rng([number, sum(arm.encode())])
    arrival = np.cumsum(round_rng.exponential(0.1, 24))
    waits = 0.1 + 0.2 * round_rng.random(24)
    gaps = 0.02 + 0.01 * round_rng.random((24, 12))
    speed = slower * np.exp(own.normal(0, noise))
    tokens = arrival[:, None] + speed * (waits[:, None] + np.cumsum(gaps, axis=1))
    long = np.arange(24) % 8 == 3
    measured = Measured.of(
        arrival.tolist(),
        tokens.tolist(),
        np.where(long, 3000, 40).tolist(),
        ["long" if one else "chat" for one in long],
    )
    return Run(arm, number, 0, measured, more.pop("lag", np.zeros(24)), **more)


def rounds(count: int, noise: float = 0.02, **slower: float) -> list[Run]:
    """Every arm in every round; `slower` says by which factor each arm is."""
    factors = {"default": 1.0, TWIN: 1.0, **slower}
    return [run(arm, n, by, noise) for n in range(count) for arm, by in factors.items()]
