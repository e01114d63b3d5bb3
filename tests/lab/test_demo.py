from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.lab.demo import ArmResult, arm_result, conclusions, sweep_conclusions
from chunkwise.lab.demo_streams import Arm, arm_settings, arms
from chunkwise.lab.prompts import prompt_ids

BASE = ArmResult(
    name="default",
    chunked=True,
    budget=2048,
    threshold=0,
    worst_gap=2.0,
    waiting_ttft=6.0,
    small_mean=5.0,
    long_ttft=5.0,
    long_mean=7.0,
    chunks_per_long=3,
    tokens_per_second=1000,
    seconds=9.0,
    idle_gap=0.05,
)


def four(**of_capped: float) -> list[ArmResult]:
    return [
        replace(BASE, name="off", chunked=False, budget=4192, worst_gap=4.0),
        BASE,
        replace(BASE, name="512", budget=512, waiting_ttft=6.1),
        replace(BASE, name="512, cap 128", budget=512, threshold=128, **of_capped),
    ]


def test_sentences_follow_the_figures() -> None:
    text = "\n".join(conclusions(four(waiting_ttft=0.5, worst_gap=0.4, long_ttft=6.5)))
    assert "4.00s with chunking off and 2.00s with vLLM's default" in text
    assert "A smaller budget alone (512) did not help those waiting: first token" in text
    assert "a cap of 128 tokens a prompt helped those waiting" in text
    assert "0.50s against 6.00s (-92%)" in text
    assert "first token of the long prompts +30%" in text
    assert "No benefit" not in text


def test_no_benefit_is_said() -> None:
    assert any("No benefit here" in line for line in conclusions(four(worst_gap=1.9)))


def test_a_machine_that_slowed_down_widens_the_noise() -> None:
    quiet = four(waiting_ttft=4.0)
    assert "helped" in conclusions(quiet)[2]
    assert "under 10% as noise" in conclusions(quiet)[-1]
    loud = [replace(arm, idle_gap=0.05 * (1 + index)) for index, arm in enumerate(quiet)]
    assert "did not help" in conclusions(loud)[2]
    assert "under 300% as noise" in conclusions(loud)[-1]


def test_sweep_names_the_price() -> None:
    results = [replace(BASE, name="32", worst_gap=0.1, seconds=18.0), replace(BASE, name="off")]
    text = "\n".join(sweep_conclusions(results))
    assert "Shortest worst gap: 32 (0.10s)" in text
    assert "32 took +100% in total time against off" in text


def request(kind: str, arrival: float, *tokens: float, chunks: tuple[int, ...]) -> dict[str, Any]:
    return {
        "kind": kind,
        "prompt_tokens": sum(chunks),
        "chunks": list(chunks),
        "arrival": arrival,
        "tokens": list(tokens),
    }


def test_an_arm_is_condensed() -> None:
    result = arm_result(
        {
            "name": "x",
            "resolved": {"chunked": True, "budget": 8, "threshold": 0},
            "requests": [
                request("early", 0, 1, 1.75, 6, chunks=(4,)),
                request("long", 2, 8, 9, chunks=(8, 8)),
                request("late", 2, 9, 10, chunks=(4,)),
            ],
        }
    )
    assert result.worst_gap == 4.25
    assert result.idle_gap == 0.75  # the one gap that ended before the long prompt came
    assert result.waiting_ttft == 7
    assert result.long_ttft == 6
    assert result.small_mean == 7  # (6 + 8) / 2
    assert result.chunks_per_long == 2
    assert result.tokens_per_second == pytest.approx((24 + 7) / 10)


def test_the_four_arms_differ_in_one_thing_each() -> None:
    off, default, small, capped = arms(None, 2048)
    assert (off.chunked, default.budget) == (False, None)
    assert (small.budget, small.threshold) == (512, None)
    assert (capped.budget, capped.threshold) == (512, 128)


@given(st.lists(st.integers(1, 5000) | st.just("off"), min_size=1, max_size=5))
def test_every_budget_of_a_sweep_is_valid(sweep: list[int | str]) -> None:
    for arm in arms(sweep, 2048):
        settings = arm_settings(arm, model_len=4192, default_seqs=128)
        assert settings.max_num_batched_tokens == (arm.budget or 4192)


def test_the_default_arm_leaves_everything_to_vllm() -> None:
    assert arm_settings(Arm("default"), 4192, 128).to_llm() == {"max_model_len": 4192}


class Letters:
    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 3000))
def test_prompts_have_their_length_and_share_no_prefix(one: int, two: int, tokens: int) -> None:
    first, second = (prompt_ids(Letters(), number, tokens) for number in (one, two))
    assert len(first) == tokens
    if one != two and tokens > 16:
        assert first[:16] != second[:16]
