"""Chat templates, run as what they are: programs by strangers.

A template comes with a model's files and can loop, nest and multiply. It runs
in jinja2's immutable sandbox, piece by piece, with a bound on processor time
and on what it writes; the text workers add a bound on memory. Invariant:
`render` returns the prompt or raises `TemplateError` within the bounds.
"""

import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError as JinjaError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_SECONDS = 2.0
MOST_CHARACTERS = 16 * 2**20
LONGEST_TEMPLATE = 2**20


class TemplateError(Exception):
    """The template could not make a prompt of these messages."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A model's chat template and the special tokens that it may name."""

    source: str
    tokens: Mapping[str, str]


class ChatRenderer:
    """Turns messages into a prompt. Usage: `ChatRenderer(template).render(messages)`."""

    def __init__(self, template: ChatTemplate) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals.update(raise_exception=_raise, strftime_now=_now)
        with _bounded():
            self._template = environment.from_string(template.source)
        self._tokens = dict(template.tokens)

    def render(self, messages: Sequence[Mapping[str, Any]], tools: object = None) -> str:
        """Return the prompt, ready for the model's answer."""
        pieces: list[str] = []
        size = 0
        with _bounded():
            for piece in self._template.generate(
                messages=messages, tools=tools, add_generation_prompt=True, **self._tokens
            ):
                size += len(piece)
                if size > MOST_CHARACTERS:
                    raise TemplateError(f"it wrote over {MOST_CHARACTERS:,} characters")
                pieces.append(piece)
        return "".join(pieces)


@contextmanager
def _bounded() -> Iterator[None]:
    # Processor time and not wall time: a busy machine is not the template's fault.
    before = signal.signal(signal.SIGVTALRM, _too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        yield
    except TemplateError:
        raise
    except (JinjaError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise TemplateError(str(error)[:200] or type(error).__name__) from None
    except (MemoryError, RecursionError, OverflowError) as error:
        raise TemplateError(f"it ran out of room ({type(error).__name__})") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _too_long(*_: object) -> NoReturn:
    raise TemplateError(f"it ran for over {MOST_SECONDS:g} s")


def _raise(message: object) -> NoReturn:
    raise TemplateError(str(message)[:200])


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _tojson(value: object, indent: int | None = None, **_: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
