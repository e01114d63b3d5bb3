import pytest
from tests.cost.test_fitted import TRUTH, WHERE, steps

from chunkwise.cost.fitted import CONTEXT_TERMS, fit
from chunkwise.cost.step import StepShape
from chunkwise.cost.words import boundary, overview, sentences


def test_what_is_said_is_what_the_cost_says() -> None:
    cost = fit(steps(300), WHERE)
    beside = StepShape.of(decodes=[1000] * 8)
    content = overview(cost, [0.05], beside)
    [item] = content["buys"]
    for chunk in item["chunks"]:
        largest = cost.largest_chunk(beside, 0.05, chunk["context"], 16_384)
        assert chunk["tokens"] == largest
        assert chunk["seen"] == cost.covers(beside.with_chunk(largest, chunk["context"]))
    depths = [chunk["tokens"] for chunk in item["chunks"]]
    assert depths == sorted(depths, reverse=True)
    assert depths[0] > depths[-1]
    said = " ".join(sentences(content))
    assert "Every step takes 4.00 ms" in said
    assert "1,000 prefill tokens take 20.00 ms" in said
    assert "add 1.00 ms to a chunk" in said


def test_a_boundary_is_a_step_of_its_own_only_where_nobody_decodes() -> None:
    found = boundary(fit(steps(300), WHERE))
    assert found["beside"] == pytest.approx(TRUTH.prefill + TRUTH.chunk, rel=0.01)
    assert found["alone"] == pytest.approx(TRUTH.fixed + TRUTH.prefill + TRUTH.chunk, rel=0.01)


def test_unknown_context_is_declared_and_depth_is_not_priced() -> None:
    content = overview(fit(steps(300), WHERE, unknown=CONTEXT_TERMS), [0.05], StepShape())
    assert "unknown" in " ".join(sentences(content))
    assert [chunk["context"] for chunk in content["buys"][0]["chunks"]] == [0]
