import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.verdict import CANNOT_KNOW, decide


def judge(lengths: list[int]):
    ordered = sorted(lengths)

    def quantile(q: float) -> int:
        return ordered[max(0, -(-int(q * 100) * len(ordered) // 100) - 1)]

    def share_above(length: int) -> float:
        return sum(n > length for n in ordered) / len(ordered)

    return decide(ordered[-1], quantile(0.95), quantile(0.5), share_above)


@pytest.mark.parametrize(
    ("lengths", "name", "threshold"),
    [
        ([999], "uncut", None),
        ([1000], "selective", 2048),
        ([2047] * 95 + [90_000] * 5, "selective", 2048),
        ([2048] * 100, "cut", 1638),
        ([10] * 94 + [10_000] * 6, "cut", 8000),
    ],
)
def test_rules_at_their_edges(lengths: list[int], name: str, threshold: int | None) -> None:
    verdict = judge(lengths)
    assert (verdict.name, verdict.threshold) == (name, threshold)


def test_uncut_leaves_vllm_alone() -> None:
    verdict = judge([10, 900])
    assert verdict.settings.to_args() == []
    assert verdict.chunking_rate == 0


def test_selective_caps_only_the_long_ones() -> None:
    verdict = judge([100] * 98 + [3000, 5000])
    assert verdict.settings.to_llm() == {"long_prefill_token_threshold": 2048}
    assert verdict.chunking_rate == pytest.approx(0.02)
    assert "2.0%" in verdict.reason


def test_cut_takes_a_budget_below_most_prompts() -> None:
    verdict = judge([6909] * 90 + [40_000] * 10)
    assert verdict.settings.to_llm() == {"max_num_batched_tokens": 4096}
    assert verdict.threshold == 32_000
    assert verdict.chunking_rate == 1


def test_an_estimate_says_so() -> None:
    for longest, p95 in [(10, 10), (3000, 10), (3000, 3000)]:
        verdict = decide(longest, p95, 10, lambda length: 0.0, estimated=True)
        assert "estimated" in verdict.reason


def test_the_limits_are_said() -> None:
    for word in ("promised", "GPU", "load", "chunkwise demo"):
        assert word in CANNOT_KNOW


@given(st.lists(st.integers(1, 200_000), min_size=1, max_size=60))
def test_every_verdict_is_one_that_vllm_takes(lengths: list[int]) -> None:
    verdict = judge(lengths)
    settings = verdict.settings
    assert settings.enable_chunked_prefill is None
    assert 0 <= verdict.chunking_rate <= 1
    # vLLM's largest default number of sequences still fits into the budget.
    assert settings.max_num_batched_tokens is None or settings.max_num_batched_tokens >= 1024
