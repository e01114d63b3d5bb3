from typing import Any

import pytest
from tests.cost.test_shape import LLAMA_8B

from chunkwise.cost.shape import shape_of
from chunkwise.engine.counters import ChunkingStats, Counted
from chunkwise.engine.decide import ScoringRoom, decide_offline, drift, judge
from chunkwise.engine.lengths import chat_lengths, prompt_lengths
from chunkwise.engine.watch import Watch
from chunkwise.settings import Settings

ROOM = ScoringRoom(shape_of(LLAMA_8B), 2**30, "gpu")


@pytest.mark.parametrize(
    ("lengths", "line", "settings"),
    [
        ([47] * 100, "uncut (stock settings): ", {}),
        (
            [47] * 97 + [2156] * 3,
            "selective (long_prefill_token_threshold=2048): ",
            {"long_prefill_token_threshold": 2048},
        ),
        ([8000] * 10, "cut (max_num_batched_tokens=4096): ", {"max_num_batched_tokens": 4096}),
    ],
)
def test_three_suites(lengths: list[int], line: str, settings: dict[str, Any]) -> None:
    decision = decide_offline(lengths, Settings(), 4096, 256)
    assert decision.line.startswith(line)
    assert decision.settings.to_llm() == settings
    assert ("does not raise offline throughput" in decision.line) == ("cut (max" in line)


def test_the_users_settings_are_kept() -> None:
    asked = Settings(max_num_batched_tokens=777, max_num_seqs=3)
    decision = decide_offline([8000] * 10, asked, 4096, 256, ROOM)
    assert decision.settings == asked
    assert "777" not in decision.line.split(":")[0]


def test_scoring_lowers_the_budget_to_what_fits() -> None:
    free = decide_offline([3000] * 10, Settings(), 8192, 256).settings
    tight = decide_offline([3000] * 10, Settings(), 8192, 256, ROOM)
    assert tight.settings.max_num_batched_tokens
    assert tight.settings.max_num_batched_tokens < (free.max_num_batched_tokens or 8192)
    assert (tight.settings.max_num_seqs or 0) <= tight.settings.max_num_batched_tokens
    assert "vocabulary of 128,256" in tight.line
    # Short prompts need little, whatever the budget.
    assert decide_offline([40] * 10, Settings(), 8192, 256, ROOM).settings == Settings()


def test_drift_names_the_setting() -> None:
    assert drift(judge([47] * 10), [47] * 20) is None
    change = drift(judge([47] * 10), [47] * 10 + [8000] * 90)
    assert change
    assert change.startswith("was uncut, would now be cut")
    assert change.endswith("Use max_num_batched_tokens=4096")


class Words:
    """A tokenizer of one token a word."""

    def __call__(self, texts: list[str], **options: Any) -> dict[str, list[list[str]]]:
        return {"input_ids": [text.split() for text in texts]}

    def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> str:
        return " ".join(["<s>", *(message["content"] for message in messages)])


@pytest.mark.parametrize(
    ("prompts", "lengths"),
    [
        ("one two", [2]),
        (["one two", "three"], [2, 1]),
        ([5, 6, 7], [3]),
        ([[5, 6, 7], [8]], [3, 1]),
        ({"prompt_token_ids": [1, 2]}, [2]),
        ([{"prompt": "one two three"}], [3]),
        ([{"prompt": "look", "multi_modal_data": {"image": object()}}], None),
        ([{"prompt_embeds": object()}], None),
    ],
)
def test_lengths_of_every_kind_of_prompt(prompts: Any, lengths: list[int] | None) -> None:
    assert prompt_lengths(prompts, Words) == lengths


def test_lengths_of_conversations() -> None:
    turn = [{"role": "user", "content": "one two"}]
    assert chat_lengths(turn, Words) == [3]
    assert chat_lengths([turn, turn], Words) == [3, 3]
    assert chat_lengths([{"role": "user", "content": [{"type": "image"}]}], Words) is None


def test_each_remark_is_made_once() -> None:
    watch = Watch(judge([47]))
    full = ChunkingStats.of(Counted(kv_peak=0.99))
    assert len(watch.look([], full)) == 1
    assert watch.look([], full) == []
    thrash = ChunkingStats.of(Counted(kv_peak=1, preemptions=3))
    [line] = watch.look([], thrash)
    assert "3 requests were put back" in line
