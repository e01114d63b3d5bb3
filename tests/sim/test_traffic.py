"""A workload as the simulator's columns."""

import numpy as np
import polars as pl
import pytest

from chunkwise.errors import UserMistake
from chunkwise.sim.traffic import Traffic
from chunkwise.workload.workload import Workload


def workload(**columns: object) -> Workload:
    return Workload.of(pl.DataFrame(columns), "made", block_size=32)


def test_columns_come_over_with_their_prefixes() -> None:
    blocks = pl.Series([[1, 2], [], [1, 3, 4]], dtype=pl.List(pl.UInt64))
    found = Traffic.of(
        workload(
            arrival_s=[5.0, 6.0, 8.0],
            prompt_tokens=[64, 10, 96],
            output_tokens=[0, 3, 4],
            prefix_blocks=blocks,
            request_class=["a", "b", "a"],
        )
    )
    assert found.arrival is not None
    assert found.arrival.tolist() == [0.0, 1.0, 3.0]
    assert found.output.tolist() == [1, 3, 4]  # an engine makes a token at least
    assert found.shared is not None
    assert found.shared.of(1) is None
    part = found.only(np.array([2, 0]))
    assert part.shared is not None
    first, second = part.shared.of(0), part.shared.of(1)
    assert first is not None
    assert second is not None
    assert first.ids.tolist() == [1, 3, 4]
    assert second.ids.tolist() == [1, 2]
    assert part.classes == ("a", "a")


def test_limit_reads_the_first_ones() -> None:
    assert len(Traffic.of(workload(prompt_tokens=[1, 2, 3], output_tokens=[1, 1, 1]), 2)) == 2


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"prompt_tokens": [1]}, "how many tokens"),
        ({"prompt_tokens": [1, 1], "output_tokens": [1, None]}, "lacks the output length"),
        (
            {"prompt_tokens": [1, 1], "output_tokens": [1, 1], "arrival_s": [2.0, 1.0]},
            "order of arrival",
        ),
    ],
)
def test_what_cannot_be_simulated_is_said(columns: dict[str, object], words: str) -> None:
    with pytest.raises(UserMistake, match=words):
        Traffic.of(workload(**columns))


def test_rates() -> None:
    own = Traffic.of(
        workload(arrival_s=[0.0, 2.0, 4.0], prompt_tokens=[1] * 3, output_tokens=[1] * 3)
    )
    faster = own.at_rate(2.0).arrival
    assert faster is not None
    assert faster.tolist() == [0.0, 0.5, 1.0]
    random = Traffic.made(10, 10, 5000, seed=1).at_rate(4.0).arrival
    assert random is not None
    assert 4999 / random[-1] == pytest.approx(4.0, rel=0.05)
    with pytest.raises(UserMistake, match="no arrival times"):
        Traffic.made(10, 10, 5).scaled(2.0)


def test_made_lengths_stay_within_the_jitter() -> None:
    made = Traffic.made(1000, 100, 500, jitter=0.2)
    assert made.prompt.min() >= 800
    assert made.prompt.max() <= 1000
    assert made.output.min() >= 80
    assert len(set(made.prompt.tolist())) > 50
