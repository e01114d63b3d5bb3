import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.captures import HEADER

from chunkwise.observed import (
    REASONS,
    Chunk,
    Request,
    Step,
    header_line,
    line_of,
    parse,
    parse_header,
)

counts = st.integers(0, 2**40)
times = st.floats(-1e6, 1e9).map(lambda value: round(value, 6))
numbers = st.lists(counts, max_size=4).map(tuple)
steps = st.builds(
    Step,
    counts,
    times,
    times.map(abs),
    st.lists(st.builds(Chunk, counts, counts, counts), max_size=4).map(tuple),
    counts,
    counts,
    counts,
    st.floats(0, 1).map(lambda value: round(value, 6)),
    counts,
    counts,
    numbers,
    numbers,
    numbers,
)
requests = st.builds(
    Request,
    *[counts, times, *[counts] * 5, st.integers(-1000, 1000), st.just("chat")],
    *[st.none() | times] * 2,
    times,
    *[st.none() | counts] * 2,
    st.sampled_from(REASONS),
    st.integers(0, 5).flatmap(lambda n: st.binary(min_size=8 * n, max_size=8 * n)),
)


@given(steps | requests)
def test_what_is_written_is_read(record: Step | Request) -> None:
    assert parse(json.loads(json.dumps(line_of(record)))) == record


def test_a_header_survives() -> None:
    assert parse_header(json.loads(json.dumps(header_line(HEADER)))) == HEADER


@pytest.mark.parametrize(
    "line",
    [
        {"step": -1, "end": 0},
        {"step": 1},
        {"step": 1, "end": "soon"},
        {"step": 1, "end": 0, "seconds": -1},
        {"step": 1, "end": 0, "chunks": [[1, 2]]},
        {"step": 1, "end": 0, "chunks": 7},
        {"step": 1, "end": 0, "decodes": True},
        {"step": 1, "end": 1e300},
        {"request": 1},
        {**line_of(Request(0, 0, 1, 1, 0, 1, 0, 0, "a", None, None, 0, None, None, "stop"))}
        | {"blocks": "AAAA"},
    ],
)
def test_what_is_wrong_is_refused(line: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"a (time|count|record|step)|block ids|values to unpack"):
        parse(line)


def test_a_remark_is_no_record() -> None:
    assert parse({"dropped": 3}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "other/1"},
        {"block_size": 0},
        {"budget": "many"},
        {"run": []},
        {"itl": "50ms"},
        {"started": None},
    ],
)
def test_a_wrong_header_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="its "):
        parse_header({**header_line(HEADER), **change})
