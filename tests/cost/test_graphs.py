import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.cost.graphs import Graphs, StepTerms, capture_sizes, default_capture_limit


def test_the_sizes_are_vllms() -> None:
    assert capture_sizes(4) == [1, 2, 4]
    assert capture_sizes(32) == [1, 2, 4, 8, 16, 24, 32]
    assert capture_sizes(512)[-3:] == [480, 496, 512]
    assert capture_sizes(0) == []


@pytest.mark.parametrize(("tokens", "padded"), [(1, 1), (3, 4), (250, 256), (257, 272), (600, 600)])
def test_tokens_are_padded_up_to_a_captured_size(tokens: int, padded: int) -> None:
    assert Graphs(StepTerms(), 36).padded(tokens) == padded


def test_without_graphs_nothing_is_padded() -> None:
    assert Graphs(StepTerms(capture_limit=0), 36).padded(3) == 3


def test_any_prefill_and_the_capture_limit_are_jumps() -> None:
    graphs = Graphs(StepTerms(), layers=36)
    full, piecewise = (graphs.seconds(0.010, 512, decode_only=kind) for kind in (True, False))
    none = graphs.seconds(0.010, 513, decode_only=True)
    assert full < piecewise < none
    # Launching from Python bounds kernels that are quicker than the host.
    assert graphs.seconds(0.0001, 512, decode_only=False) == pytest.approx(36 * 40e-6)


@given(st.floats(0, 0.1), st.integers(1, 2000), st.booleans())
def test_one_more_token_is_never_cheaper(kernels: float, tokens: int, decode_only: bool) -> None:
    graphs = Graphs(StepTerms(), layers=36)
    assert graphs.padded(tokens) <= graphs.padded(tokens + 1)
    less = graphs.seconds(kernels, tokens, decode_only)
    assert less <= graphs.seconds(kernels, tokens + 1, decode_only)
    assert less <= graphs.seconds(kernels, tokens, decode_only=False)


def test_data_centre_blackwell_captures_more() -> None:
    assert default_capture_limit("gb200") == default_capture_limit("b300_sxm") == 1024
    assert default_capture_limit("h100_sxm") == default_capture_limit("rtx_pro_6000_server") == 512
