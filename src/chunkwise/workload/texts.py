"""Rows with text: where the prompt is, and what is known of the answer.

Three forms: ShareGPT conversations (the first turn is the prompt and the second
the answer, as in vLLM's own benchmark), chat logs with `messages`, and plain
columns. Invariant: a row becomes a prompt of plain parts or a sentence with the
row's number; nothing in a row is ever run, except by the chat template.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from chunkwise.errors import UserMistake
from chunkwise.workload.lengths import LARGEST

PROMPT_COLUMNS = ("prompt", "text", "question")
# Often part of what is asked, and never guessed: a note names them.
COMPANIONS = ("context", "passage", "document", "options", "choices", "function", "tools")
ARRIVALS = ("arrival_s", "timestamp", "created")
# All that is ever read of a row beside its columns of text.
READ = frozenset(
    [
        "conversations",
        "messages",
        "body",
        "request",
        "response",
        "usage",
        "choices",
        "tools",
        "max_tokens",
        "max_completion_tokens",
        "output_tokens",
        "request_class",
    ]
).union(ARRIVALS)
FEWEST_MILLISECONDS = 1e11  # a larger number is no time in seconds

MOST_ROWS = 256
MOST_CHARACTERS = 2**21

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextLayout:
    """How to find prompts in rows."""

    name: str
    columns: tuple[str, ...]  # for plain columns; empty for conversations and messages
    has_arrivals: bool
    has_classes: bool
    note: str | None = None


def find_text(first: Row, columns: tuple[str, ...] | None) -> TextLayout | None:
    """Return how the first row holds its prompt, if it does."""
    classes = isinstance(first.get("request_class"), str)
    if columns is not None:
        present = tuple(name for name in columns if name in first)
        if not present:
            return None
        named = ", ".join(f"`{name}`" for name in present)
        return TextLayout(f"text in {named}", columns, "arrival_s" in first, classes)
    if isinstance(first.get("conversations"), list):
        return TextLayout("ShareGPT conversations", (), False, classes)
    if isinstance(_request(first).get("messages"), list):
        timed = any(first.get(name) is not None for name in ARRIVALS)
        return TextLayout("chat log", (), timed, classes)
    column = next((name for name in PROMPT_COLUMNS if name in first), None)
    if column is None:
        return None
    others = [name for name in COMPANIONS if name in first and name != column]
    note = None
    if others:
        note = (
            f"only `{column}` was read; if your prompts hold {', '.join(others)} too, "
            f"use --column {','.join([*others, column])}"
        )
    return TextLayout(f"text in `{column}`", (column,), "arrival_s" in first, classes, note)


def batches(rows: Iterable[Row], layout: TextLayout, name: str) -> Iterator[list[dict[str, Any]]]:
    """Yield requests, so many at a time that their text stays small."""
    batch: list[dict[str, Any]] = []
    size = 0
    for number, row in enumerate(rows, start=1):
        request = _extracted(row, layout, f"{name}: request {number:,}")
        batch.append(request)
        size += sum(map(_characters, request["prompt"]))
        if len(batch) >= MOST_ROWS or size >= MOST_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _extracted(row: Row, layout: TextLayout, where: str) -> dict[str, Any]:
    output: Any = None
    if layout.columns:
        request: Row = row
        found = [row[column] for column in layout.columns if row.get(column) is not None]
        if not found:
            raise UserMistake(f"{where} has nothing in {layout.name.removeprefix('text in ')}.")
        prompt = [_part(value, where) for value in found]
    elif layout.name == "chat log":
        request = _request(row)
        messages = _messages(request.get("messages"), where)
        # A log that ends with the assistant's turn holds the answer there.
        if len(messages) > 1 and messages[-1]["role"] == "assistant":
            output = messages.pop()["content"]
        else:
            output = _answer(row)
        prompt = [{"messages": messages, "tools": request.get("tools")}]
    else:
        request = row
        turns = row.get("conversations")
        said = [turn.get("value") for turn in turns or () if isinstance(turn, Mapping)]
        if not said or not all(isinstance(text, str) for text in said[:2]):
            raise UserMistake(f"{where} has no turn with a `value` to read.")
        prompt, output = [said[0]], said[1] if len(said) > 1 else None
    usage = _response(row).get("usage")
    known = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    limit = request.get("max_completion_tokens") or request.get("max_tokens")
    return {
        "prompt": prompt,
        "output": output if isinstance(output, str) and known is None else None,
        "known": _length(row.get("output_tokens") if known is None else known, where),
        "limit": _length(limit, where),
        "arrival": _arrival(row, where) if layout.has_arrivals else None,
        "class": str(row.get("request_class") or "")[:64] if layout.has_classes else None,
    }


def _part(value: Any, where: str) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        if all(isinstance(item, str) for item in value):
            return "\n".join(value)
        if all(isinstance(item, list) for item in value):  # turns of messages
            value = [message for turn in value for message in turn]
        if value and all(isinstance(item, Mapping) and "role" in item for item in value):
            return {"messages": _messages(value, where), "tools": None}
    return json.dumps(value, ensure_ascii=False, default=str)


def _messages(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise UserMistake(f"{where} has no messages.")
    messages = []
    for item in value:
        if not isinstance(item, Mapping) or not isinstance(item.get("role"), str):
            raise UserMistake(f"{where} has a message without a `role`.")
        content = item.get("content")
        if isinstance(content, list):  # parts: what is text in them
            parts = (part.get("text") for part in content if isinstance(part, Mapping))
            content = "\n".join(text for text in parts if isinstance(text, str))
        elif not isinstance(content, str):
            content = "" if content is None else json.dumps(content, default=str)
        messages.append({**item, "content": content})
    return messages


def _request(row: Row) -> Row:
    # OpenAI's batch files put the request under `body`; many proxies under `request`.
    for name in ("body", "request"):
        if isinstance(inner := row.get(name), Mapping) and "messages" in inner:
            return inner
    return row


def _response(row: Row) -> Row:
    inner = row.get("response")
    if isinstance(inner, Mapping):
        return body if isinstance(body := inner.get("body"), Mapping) else inner
    return row


def _answer(row: Row) -> str | None:
    choices = _response(row).get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        message = choices[0].get("message")
        if isinstance(message, Mapping) and isinstance(message.get("content"), str):
            return str(message["content"])
    return None


def _length(value: Any, where: str) -> int | None:
    if value is None or value == "":
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise UserMistake(f"{where} has {str(value)[:40]!r} for a number of tokens.") from None
    if not 0 <= number <= LARGEST:
        raise UserMistake(f"{where} has {str(value)[:40]} for a number of tokens.")
    return number


def _arrival(row: Row, where: str) -> float:
    value = next((row[name] for name in ARRIVALS if row.get(name) is not None), None)
    try:
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                return datetime.fromisoformat(value).timestamp()
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise UserMistake(f"{where} has {str(value)[:40]!r} for an arrival time.") from None
    return number / 1e3 if abs(number) >= FEWEST_MILLISECONDS else number


def _characters(part: Any) -> int:
    if isinstance(part, str):
        return len(part)
    return sum(len(message["content"]) for message in part["messages"])
