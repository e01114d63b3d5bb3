"""How long prompts are, before there is an engine: by the tokenizer it will have.

Invariant: a length is exact or there is none. A prompt of a kind that we do not
know (an image, an embedding) makes the answer None, and the caller leaves vLLM alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def prompt_lengths(prompts: Any, tokenizer: Callable[[], Any]) -> list[int] | None:
    """Return each prompt's tokens; the tokenizer is loaded only if one is a text.

    Usage: `prompt_lengths(["Hello"], lambda: tokenizer) == [1]`
    """
    texts: list[str] = []
    lengths: list[int] = []
    for prompt in _as_list(prompts):
        ids = _token_ids(prompt)
        text = prompt.get("prompt") if isinstance(prompt, Mapping) else prompt
        if ids is not None:
            lengths.append(len(ids))
        elif isinstance(text, str) and not _has_media(prompt):
            texts.append(text)
        else:
            return None
    return lengths + _count(texts, tokenizer)


def chat_lengths(
    conversations: Any,
    tokenizer: Callable[[], Any],
    chat_template: str | None = None,
    **template_kwargs: Any,
) -> list[int] | None:
    """Return the tokens of each conversation once the chat template is around it."""
    if conversations and isinstance(conversations[0], Mapping):
        conversations = [conversations]
    texts = []
    loaded = tokenizer()
    for messages in conversations:
        if not all(isinstance(message.get("content"), str) for message in messages):
            return None
        texts.append(
            loaded.apply_chat_template(
                list(messages),
                chat_template=chat_template,
                tokenize=False,
                **{"add_generation_prompt": True, **template_kwargs},
            )
        )
    # The template writes the special tokens itself.
    return _count(texts, lambda: loaded, add_special_tokens=False)


def _count(texts: list[str], tokenizer: Callable[[], Any], **options: Any) -> list[int]:
    return [len(ids) for ids in tokenizer()(texts, **options)["input_ids"]] if texts else []


def _as_list(prompts: Any) -> Sequence[Any]:
    if isinstance(prompts, str | Mapping):
        return [prompts]
    if isinstance(prompts, Sequence) and prompts and isinstance(prompts[0], int):
        return [prompts]  # one prompt, as ids
    return list(prompts)


def _token_ids(prompt: Any) -> Sequence[int] | None:
    if isinstance(prompt, Mapping):
        return None if _has_media(prompt) else prompt.get("prompt_token_ids")
    if isinstance(prompt, Sequence) and not isinstance(prompt, str):
        return prompt if all(isinstance(item, int) for item in prompt) else None
    return None


def _has_media(prompt: Any) -> bool:
    return isinstance(prompt, Mapping) and bool(prompt.get("multi_modal_data"))
