"""The order of runs, the rule that ends them, the search: no engine needed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from chunkwise.lab.compare import _value
from chunkwise.lab.load import Request, played
from chunkwise.lab.rounds import ending, order
from chunkwise.lab.runs import Run
from chunkwise.lab.search import best_static, candidates
from chunkwise.measured import Measured
from chunkwise.slo import Slo

from .test_arms import MACHINE

RULE = {"least_rounds": 2, "most_rounds": 4, "precision": 0.05, "seconds": 600.0}
ASKED = {"arms": {"a": {}, "b": {}, "c": {}}, "rule": RULE}


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_orders_are_balanced(n: int) -> None:
    arms = [f"arm{index}" for index in range(n)]
    rounds = [order(arms, number) for number in range(n if n % 2 == 0 else 2 * n)]
    for turn in zip(*rounds, strict=True):
        assert len(set(Counter(turn).values())) == 1  # every place equally often
    follows = Counter(pair for one in rounds for pair in pairwise(one))
    assert len(follows) == n * (n - 1)
    assert len(set(follows.values())) == 1  # every neighbour equally often


def run(arm: str, number: int) -> Run:
    measured = Measured.of([0.0], [[0.1, 0.2]], [5])
    return Run(arm, number, 0, measured, np.zeros(1))


def rounds(count: int, arms: str = "abc") -> list[Run]:
    return [run(arm, number) for number in range(count) for arm in arms]


def never(asked: Mapping[str, Any], done: Sequence[Run]) -> bool:
    return False


def always(asked: Mapping[str, Any], done: Sequence[Run]) -> bool:
    return True


def test_the_rule_that_was_stated_ends_it() -> None:
    assert ending(ASKED, [], 0.0, always) is None
    assert ending(ASKED, rounds(1), 0.0, always) is None  # fewer than the least
    assert "every interval" in str(ending(ASKED, rounds(2), 0.0, always))
    assert ending(ASKED, rounds(2), 0.0, never) is None
    assert "time limit" in str(ending(ASKED, rounds(1), 601.0, never))
    assert "the most" in str(ending(ASKED, rounds(4), 0.0, never))


def test_an_open_round_is_always_closed() -> None:
    assert ending(ASKED, [*rounds(2), run("a", 2)], 601.0, always) is None


def test_numbers_in_arguments() -> None:
    assert _value(["--a", "1", "--max-model-len", "4096"], "--max-model-len") == 4096
    assert _value(["--max-model-len=4096"], "--max-model-len") == 4096
    assert _value(["--max-model-len"], "--max-model-len") is None
    assert _value([], "--max-model-len") is None


def stream(gap: float, tokens: int = 50) -> Measured:
    return Measured.of([0.0], [(0.1 + gap * np.arange(tokens)).tolist()], [10])


def test_the_search_keeps_the_best_and_its_figures() -> None:
    field = candidates(MACHINE)
    gaps = dict(zip((arm.said for arm in field), (0.04, 0.03, 0.01, 0.02), strict=True))
    asked: list[tuple[str, int]] = []
    stopped: list[str] = []

    def play(arm: Any, n: int) -> Measured:
        asked.append((arm.said, n))
        return stream(gaps[arm.said])

    best = best_static(
        field, 64, Slo(itl=0.015), play, lambda arm: stopped.append(arm.said), lambda: True
    )
    assert best.name == "best-static"
    assert best.args == field[2].args
    assert [n for _, n in asked] == [16] * 4 + [32] * 2
    assert sorted(stopped) == sorted(gaps)  # none is left running
    assert best.search[0]["settings"] == field[2].said
    assert best.search[0]["goodput_share"] == 1.0


def test_the_search_ends_with_its_time() -> None:
    field = candidates(MACHINE)
    tried: list[str] = []

    def play(arm: Any, n: int) -> Measured:
        tried.append(arm.said)
        return stream(0.01)

    best = best_static(field, 64, None, play, lambda arm: None, lambda: len(tried) < 2)
    assert tried == [field[0].said, field[1].said]
    assert best.args in (field[0].args, field[1].args)


def test_what_the_client_saw_becomes_columns() -> None:
    requests = [Request(0.0, 5, 2, "chat"), Request(1.0, 5, 2, "long"), Request(2.0, 5, 2, "chat")]
    outcomes = [
        {"sent": 100.0, "prompt_tokens": 5, "ttft": 0.5, "gaps": [0.25], "error": ""},
        {"sent": 101.03, "prompt_tokens": 6, "ttft": 0.5, "gaps": [], "error": ""},
        {"sent": 102.0, "prompt_tokens": 5, "ttft": 0.0, "gaps": [], "error": "ClientOSError"},
    ]
    found = played(outcomes, requests, closed=False)
    assert found.lag == pytest.approx([0.0, 0.03, 0.0])
    assert found.failed == {"ClientOSError": 1}
    assert found.measured.classes == ("chat", "long")
    assert found.measured.arrival == pytest.approx([0.0, 1.03])
    assert found.measured.token_times == pytest.approx([0.5, 0.75, 1.53])
    assert played(outcomes, requests, closed=True).lag == pytest.approx([0, 0, 0])
