from hypothesis import given
from hypothesis import strategies as st

from chunkwise.cost.step import StepShape, search_largest_chunk

CHUNKS = st.lists(st.tuples(st.integers(0, 8192), st.integers(0, 131072)), max_size=8)
DECODES = st.lists(st.integers(1, 131072), max_size=8)


@given(CHUNKS, DECODES)
def test_extending_and_constructing_agree(
    chunks: list[tuple[int, int]], decodes: list[int]
) -> None:
    grown = StepShape()
    for tokens, context in chunks:
        grown = grown.with_chunk(tokens, context)
    for context in decodes:
        grown = grown.with_decode(context)
    assert grown == StepShape.of(chunks, decodes)
    assert grown.tokens == sum(tokens for tokens, _ in chunks) + len(decodes)


@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(0, 10**6))
def test_cutting_a_prompt_changes_neither_tokens_nor_work(
    first: int, second: int, context: int
) -> None:
    whole = StepShape().with_chunk(first + second, context)
    cut = StepShape().with_chunk(first, context).with_chunk(second, context + first)
    assert (cut.prefill_tokens, cut.prefill_work) == (whole.prefill_tokens, whole.prefill_work)
    assert cut.chunks == 2


def test_a_chunk_of_nothing_is_no_chunk() -> None:
    assert StepShape().with_chunk(0, 500) == StepShape() == StepShape.of([(0, 500)])


@given(
    st.integers(0, 300),
    st.integers(0, 50),
    st.floats(0, 0.05),
    st.floats(0, 1),
    st.integers(0, 400),
)
def test_the_search_agrees_with_trying_every_size(
    tokens: int, steps: int, base: float, allowance: float, at_most: int
) -> None:
    def seconds(shape: StepShape) -> float:  # a staircase: the hardest monotone cost
        return base + shape.prefill_tokens // (steps + 1) * 0.01

    shape = StepShape().with_chunk(tokens, 0)
    fits = [
        size for size in range(1, at_most + 1) if seconds(shape.with_chunk(size, 7)) <= allowance
    ]
    assert search_largest_chunk(seconds, shape, allowance, 7, at_most) == max(fits, default=0)
