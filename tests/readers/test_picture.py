from pathlib import Path

import pytest
from tests.captures import life, write

from chunkwise.errors import UserMistake
from chunkwise.readers.capture import captures
from chunkwise.readers.gaps import BETWEEN, PREEMPTED, PREFILL
from chunkwise.readers.picture import Picture


@pytest.fixture
def picture(tmp_path: Path) -> Picture:
    write(tmp_path, life(), ttft=0.31)
    return Picture.of(captures(tmp_path), itl=0.05)


def test_steps_by_kind(picture: Picture) -> None:
    assert {name: kind.steps for name, kind in picture.kinds.items()} == {
        "decode": 4,
        "mixed": 2,
        "prefill": 1,
    }
    assert picture.kinds["mixed"].seconds == pytest.approx(0.5)
    assert picture.kinds["mixed"].prefill_tokens == pytest.approx(2000.5)
    assert picture.mixed_share == pytest.approx(2 / 3)
    assert picture.preemptions == 1
    assert picture.kv_peak == 0.9


def test_causes_of_gaps_over_the_target(picture: Picture) -> None:
    found = {name: (c.gaps, round(c.seconds_over, 6)) for name, c in picture.causes.items()}
    assert found == {PREFILL: (2, 0.4), PREEMPTED: (1, 0.17), BETWEEN: (1, 0.25)}
    assert picture.gaps == 8
    assert picture.gap_quantiles["max"] == pytest.approx(0.3)


def test_requests(picture: Picture) -> None:
    assert picture.requests == 2
    assert picture.cached_tokens == 32
    assert picture.late == 1
    assert picture.late_in_queue == 0
    assert picture.first_token["whole"]["max"] == pytest.approx(0.32)


def test_without_a_target_the_slowest_are_shown(tmp_path: Path) -> None:
    write(tmp_path, life())
    picture = Picture.of(captures(tmp_path))
    assert not picture.limit_given
    assert picture.limit == pytest.approx(0.3)
    assert picture.late is None


def test_nothing_ended(tmp_path: Path) -> None:
    write(tmp_path, [])
    with pytest.raises(UserMistake, match="No step ended"):
        Picture.of(captures(tmp_path))
