import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cost.test_shape import LLAMA_8B

from chunkwise.cost import memory
from chunkwise.cost.shape import shape_of
from chunkwise.errors import UserMistake
from chunkwise.sizes import GIB

SHAPE = shape_of(LLAMA_8B)


def test_kv_bytes_of_a_known_model() -> None:
    assert memory.kv_bytes_per_token(SHAPE) == 128 * 1024
    assert memory.kv_bytes_per_token(SHAPE, kv_dtype_bytes=1) == 64 * 1024
    assert memory.kv_bytes_per_token(SHAPE, tp=8) == 16 * 1024
    # Eight KV heads cannot be spread over more than eight devices.
    assert memory.kv_bytes_per_token(SHAPE, tp=16) == 16 * 1024


def test_compressed_kv_is_on_every_device() -> None:
    mla = shape_of(LLAMA_8B | {"kv_lora_rank": 512, "qk_rope_head_dim": 64})
    assert memory.kv_bytes_per_token(mla, tp=8) == 32 * 576 * 2


def test_scoring_takes_six_bytes_a_token_and_entry_in_16_bits() -> None:
    # The figure of the thread: about 7.5 GB at 8,192 tokens and a vocabulary of 152k.
    qwen = shape_of(LLAMA_8B | {"vocab_size": 151936})
    assert memory.scoring_bytes(qwen, 8192) == pytest.approx(7.5e9, rel=0.01)


def test_short_prompts_bound_the_logits_whatever_the_budget() -> None:
    one = memory.scoring_bytes(SHAPE, 8192, longest=100)
    assert one == memory.scoring_bytes(SHAPE, 16384, longest=100)
    assert one == SHAPE.vocab * 100 * (2 + 4 + 4)


def test_cutting_saves_eager_attention_and_not_fused() -> None:
    whole, cut = (memory.eager_attention_bytes(SHAPE, n, 32768) for n in (32768, 2048))
    assert whole == 16 * cut
    fused = memory.fused_attention_bytes(SHAPE, 32768, 32768)
    assert fused < memory.activation_bytes(SHAPE, 2048) / 10
    assert "keeps one running sum" in memory.WHY_FUSED


def test_a_larger_budget_leaves_a_smaller_pool() -> None:
    pools = [memory.pool(SHAPE, 24 * GIB, 0.92, budget).tokens for budget in (2048, 8192, 16384)]
    assert pools == sorted(pools, reverse=True)
    assert pools[0] > pools[-1]
    assert memory.pool(SHAPE, 8 * GIB, 0.92, 2048).tokens == 0


def test_the_cpu_engine_keeps_a_tied_matrix_twice() -> None:
    matrix = SHAPE.vocab * SHAPE.hidden * SHAPE.dtype_bytes
    tied = shape_of(LLAMA_8B | {"tie_word_embeddings": True})
    # Once less in the weights, once more packed: the pool is the same.
    assert memory.weight_bytes(tied) == memory.weight_bytes(SHAPE) - matrix
    assert memory.cpu_pool(tied, 64 * GIB, 0.5) == memory.cpu_pool(SHAPE, 64 * GIB, 0.5)
    assert memory.cpu_pool(SHAPE, 8 * GIB, 0.9).tokens == 0


def test_the_right_budget_is_named() -> None:
    limit = 2 * GIB
    with pytest.raises(UserMistake, match=r"over the limit of 2\.0 GiB") as caught:
        memory.refuse_budget(SHAPE, 8192, limit)
    best = memory.largest_scoring_budget(SHAPE, limit)
    assert f"max_num_batched_tokens to {best} or less" in str(caught.value)
    memory.refuse_budget(SHAPE, best, limit)
    with pytest.raises(UserMistake):
        memory.refuse_budget(SHAPE, best + 1, limit)
    with pytest.raises(UserMistake, match="raise the limit"):
        memory.refuse_budget(SHAPE, 1, 10)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.sampled_from(["gpu", "cpu"]))
def test_a_step_never_shrinks_with_the_budget(budget: int, longest: int, device: str) -> None:
    less, more = (
        memory.step_bytes(SHAPE, size, longest, device)  # type: ignore[arg-type]
        for size in (budget, budget + 1)
    )
    assert less <= more


@given(st.integers(0, 2**40), st.sampled_from([16, 32, 128]))
def test_a_pool_is_whole_blocks_within_its_bytes(size: int, block: int) -> None:
    pool = memory.pool_from_bytes(SHAPE, size, block)
    assert pool.tokens % block == 0
    assert pool.bytes <= size < pool.bytes + block * memory.kv_bytes_per_token(SHAPE)
