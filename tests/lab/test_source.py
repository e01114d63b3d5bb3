"""A round's requests: the same for all arms, other ones in the next round."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.captures import request, write

from chunkwise.errors import UserMistake
from chunkwise.lab.source import Source, fingerprint, mixed, open_source


def test_the_built_in_mixture() -> None:
    one, other = mixed(100, 0), mixed(100, 1)
    assert one == mixed(100, 0)
    assert one != other
    for requests in (one, other):
        long = [request for request in requests if request.kind == "long"]
        assert len(long) == 12
        assert all(3_000 <= request.prompt_tokens <= 7_000 for request in long)
        assert all(request.prompt_tokens <= 1_024 for request in requests if request.kind == "chat")
    # Other requests, the same statistics.
    total = [sum(request.prompt_tokens for request in requests) for requests in (one, other)]
    assert total[0] == pytest.approx(total[1], rel=0.05)


def test_arrivals() -> None:
    source = open_source("mixed", "none")
    poisson = source.round(200, 3, rate=4.0, users=None)
    at = np.array([request.at for request in poisson])
    assert at[0] == 0
    assert at[-1] == pytest.approx(199 / 4.0)
    assert np.diff(at).std() == pytest.approx(np.diff(at).mean(), rel=0.3)
    assert poisson == source.round(200, 3, rate=4.0, users=None)
    assert {request.at for request in source.round(20, 3, rate=None, users=4)} == {0.0}


def test_what_does_not_fit_the_model_is_left_out() -> None:
    source = open_source("mixed", "none")
    assert len(source.fitting(2048).round(100, 0, 1.0, None)) == 88
    with pytest.raises(UserMistake, match="fits the model's 8 tokens"):
        source.fitting(8).round(100, 0, 1.0, None)


def write_trace(file: Path, rows: int) -> None:
    lines = [
        {"timestamp": 500 * n, "input_length": 600 + n, "output_length": 5, "hash_ids": [7, n]}
        for n in range(rows)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_recorded_trace_is_played_in_stretches(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    write_trace(file, 50)
    source = open_source(str(file), "none")
    assert source.timed
    assert source.block_size == 512
    first, second = (source.round(10, seed, None, None) for seed in (0, 1))
    assert [request.at for request in first] == pytest.approx(np.arange(10) / 2)
    assert [r.prompt_tokens for r in first] != [r.prompt_tokens for r in second]
    assert first[3].blocks == (7, first[3].prompt_tokens - 600)
    assert fingerprint(first) != fingerprint(second)
    assert fingerprint(first) == fingerprint(
        open_source(str(file), "none").round(10, 0, None, None)
    )


def test_text_is_sent_as_it_is(tmp_path: Path, smollm2: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    prompts = [f"Say the number {n} " * n for n in range(1, 30)]
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in prompts))
    source: Source = open_source(str(file), str(smollm2))
    assert not source.timed
    drawn = source.round(10, 0, rate=1.0, users=None)
    assert len({request.parts for request in drawn}) == 10
    for one in drawn:
        assert one.parts is not None
        assert one.parts[0] in prompts
        assert one.prompt_tokens >= len(one.parts[0].split())
        assert one.blocks == ()
        assert one.output_tokens == 128


def test_no_such_file() -> None:
    with pytest.raises(UserMistake, match="or `mixed`"):
        open_source("nowhere.jsonl", "none")


def test_a_capture_is_sent_again_as_it_came(tmp_path: Path) -> None:
    ended = [request(1, 5.5), request(0, 5.0, prompt=40, blocks=bytes(16)), request(2, 6.25)]
    write(tmp_path, ended)
    source = open_source(str(tmp_path), "none")
    assert source.timed
    sent = source.round(3, 0, rate=None, users=None)
    assert [one.at for one in sent] == [0.0, 0.5, 1.25]
    assert [one.prompt_tokens for one in sent] == [40, 100, 100]
    assert sent[1].blocks == sent[2].blocks != sent[0].blocks
    assert sent[0].blocks == (0, 0)
