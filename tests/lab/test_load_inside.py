"""Prompts: their own text, or English of their lengths with equal blocks where ids are equal."""

from typing import Any

from chunkwise.engine.bench_client import _every, _kind
from chunkwise.lab.load_inside import maker


class Words:
    """A tokenizer with an id for every word."""

    chat_template = "yes"

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [hash(word) for word in text.split()]

    def apply_chat_template(self, messages: Any, **more: Any) -> str:
        assert more["add_generation_prompt"]
        return " ".join(f"<{message['role']}> {message['content']}" for message in messages)


def request(tokens: int, blocks: list[int] | None = None, parts: Any = None) -> dict[str, Any]:
    return {
        "at": 0.5,
        "prompt_tokens": tokens,
        "output_tokens": 10,
        "blocks": blocks or [],
        "parts": parts,
    }


def test_lengths_are_exact_and_equal_blocks_are_equal_text() -> None:
    make = maker(Words(), 1000)
    one, two, alone, short = make(
        [request(70, [5, 6]), request(80, [5, 7]), request(33), request(3, [])], 32
    )
    assert [len(ask.prompt) for ask in (one, two, alone, short)] == [70, 80, 33, 3]
    assert one.prompt[:32] == two.prompt[:32]
    assert one.prompt[32:64] != two.prompt[32:64]
    assert alone.prompt[:2] != one.prompt[:2]
    assert (one.output_tokens, one.at) == (10, 0.5)


def test_nothing_is_longer_than_the_model() -> None:
    assert len(maker(Words(), 50)([request(70)], 16)[0].prompt) == 40


def test_text_is_encoded_and_messages_go_through_the_template() -> None:
    words = Words()
    make = maker(words, 1000)
    messages = {"messages": [{"role": "user", "content": "how much"}], "tools": None}
    text, chat = make(
        [request(9, parts=["so long", "and short"]), request(9, parts=[messages])], 16
    )
    assert text.prompt == words.encode("so long and short")
    assert chat.prompt == words.encode("<user> how much")


def test_an_error_is_named_without_its_text() -> None:
    trace = "Traceback\n  File x\naiohttp.client_exceptions.ClientOSError: [Errno 104] a prompt"
    assert _kind(trace, 0.0) == "ClientOSError"
    assert _kind("Bad Request", 0.0) == "Bad Request"
    assert _kind("", 0.5) == ""
    assert _kind("", 0.0) == "no answer"


def test_tokens_that_came_together_have_no_gap_between_them() -> None:
    assert _every([0.1, 0.2], 3) == [0.1, 0.2]
    assert _every([0.1, 0.2], 5) == [0.1, 0.2, 0.0, 0.0]
    assert _every([], 0) == []
