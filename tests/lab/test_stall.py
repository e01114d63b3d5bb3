"""The same moment in every arm, chosen by the baseline's worst gap."""

import numpy as np

from chunkwise.lab.runs import Run
from chunkwise.lab.stall import moments
from chunkwise.measured import Measured


def stalled(arm: str, stall: float, start: float = 0.0) -> Run:
    """Two stream; at 1.0 a prompt of 5,000 tokens arrives and stalls them."""
    early = np.arange(0.1, 1.01, 0.1)
    late = np.arange(1.0 + stall, 3.0, 0.1)
    stream = (start + np.concatenate([early, late])).tolist()
    measured = Measured.of(
        [start, start + 0.05, start + 1.0, start + 2.9],
        [stream, stream, [start + 1.0 + stall, start + 1.1 + stall], [start + 2.95]],
        [10, 12, 5000, 11],
    )
    return Run(arm, 3, 0, measured, np.zeros(4))


def test_the_stall_behind_the_long_prompt_is_found() -> None:
    # Each run has a clock of its own.
    found = moments([stalled("default", 1.0, 500.0), stalled("arm", 0.2)], "default", ARMS)
    assert [one.arm for one in found] == ["default", "arm"]
    worst, other = found
    assert worst.prompt_tokens == other.prompt_tokens == 5000
    assert np.allclose(worst.gap, (1.0, 2.0))
    assert np.allclose(other.gap, (1.0, 1.2))
    assert (worst.begin, worst.end) == (other.begin, other.end)
    assert worst.begin <= 0.5
    assert worst.end >= 2.5
    assert len(worst.rows) == 2  # the long prompt itself is not among those who stream
    assert all((times >= worst.begin).all() and (times <= worst.end).all() for times in worst.rows)
    assert np.isclose(worst.arrival, 1.0)
    assert np.isclose(other.first_token, 1.2)


def test_an_arm_without_that_round_is_left_out_of_the_choice() -> None:
    calm = Run("default", 4, 0, stalled("default", 0.1).measured, np.zeros(4))
    shared = Run("arm", 4, 0, stalled("arm", 0.3).measured, np.zeros(4))
    found = moments([stalled("default", 1.0), calm, shared], "default", ARMS)
    assert np.isclose(found[0].gap[1] - found[0].gap[0], 0.1)


def test_nothing_to_show() -> None:
    nobody = Run("default", 0, 0, Measured.of([0.0], [[1.0]], [5]), np.zeros(1))
    assert moments([nobody], "default", ["default"]) == ()
    assert moments([], "default", ARMS) == ()
    assert moments([stalled("arm", 0.2)], "default", ARMS) == ()


def test_a_prompt_that_was_never_answered() -> None:
    measured = Measured.of([0.0, 0.1], [[0.2, 0.9, 1.0], []], [5, 4000])
    found = moments([Run("default", 0, 0, measured, np.zeros(2))], "default", ["default"])
    assert np.allclose(found[0].gap, (0.2, 0.9))


ARMS = ["default", "arm"]
