"""Who arrives when: by the clock, or after an answer."""

import math

import numpy as np
import pytest

from chunkwise.errors import UserMistake
from chunkwise.sim.sources import ClosedLoop, OpenLoop, Users


def test_an_open_loop_hands_out_each_request_once() -> None:
    source = OpenLoop(np.array([0.0, 1.0, 1.0, 3.0]))
    assert source.due(0.5) == [(0, 0.0)]
    assert source.due(1.0) == [(1, 1.0), (2, 1.0)]
    assert source.next() == 3.0
    assert source.due(9.0) == [(3, 3.0)]
    assert source.next() == math.inf


def test_a_closed_loop_sends_after_an_answer() -> None:
    source = ClosedLoop(3, Users(2))
    assert source.due(0.0) == [(0, 0.0), (1, 0.0)]
    assert source.next() == math.inf
    source.ended(1, 4.0)
    assert source.due(4.0) == [(2, 4.0)]
    source.ended(0, 5.0)
    assert source.next() == math.inf


def test_thinking_and_starting_late_take_time() -> None:
    source = ClosedLoop(100, Users(50, think=2.0, stagger=10.0), seed=3)
    starts = [time for _, time in source.due(10.0)]
    assert len(starts) == 50
    assert starts == sorted(starts)
    assert max(starts) > 5
    source.ended(0, 20.0)
    assert source.next() > 20.0


def test_there_is_no_loop_without_users() -> None:
    with pytest.raises(UserMistake, match="a user at least"):
        Users(0)
