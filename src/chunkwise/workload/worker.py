"""A text worker: one process that tokenizes batches for its parent over a pipe.

A process of its own, because tokenizing Python strings keeps one interpreter
busy, and because a chat template must not take more than this process has.
Frames are a length and JSON or raw numbers, so that neither side ever has to
unpickle anything. Invariant: one frame in, one frame out, until the pipe ends.
"""

import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from chunkwise.workload.chat import ChatRenderer, ChatTemplate, TemplateError
from chunkwise.workload.measure import Measured, measure

MOST_MEMORY = 6 * 2**30
_NUMBER = np.dtype("<i8")


class Tokens:
    """A model's tokenizer and chat template."""

    ids_per_token = 1

    def __init__(self, tokenizer: Path, template: ChatTemplate | None) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._renderer = None if template is None else ChatRenderer(template)

    def prompts(self, batch: Sequence[Sequence[Any]]) -> list[str]:
        """Join the parts, messages through the model's template."""
        return ["\n".join(map(self._rendered, parts)) for parts in batch]

    def ids(self, texts: Sequence[str], whole: Sequence[bool]) -> list[npt.NDArray[np.uint32]]:
        """Return token ids, with the special tokens that vLLM would add."""
        found: list[npt.NDArray[np.uint32]] = [np.zeros(0, dtype=np.uint32)] * len(texts)
        for special in (True, False):
            chosen = [index for index, is_whole in enumerate(whole) if is_whole != special]
            if chosen:
                encodings = self._tokenizer.encode_batch_fast(
                    [texts[index] for index in chosen], add_special_tokens=special
                )
                for index, encoding in zip(chosen, encodings, strict=True):
                    found[index] = np.array(encoding.ids, dtype=np.uint32)
        return found

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens each output has."""
        return list(map(len, self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)))

    def _rendered(self, part: Any) -> str:
        if isinstance(part, str):
            return part
        if self._renderer is None:
            raise TemplateError("there is none beside the tokenizer")
        return self._renderer.render(part["messages"], part.get("tools"))


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Read one frame; None at the end."""
    size = stream.read(8)
    return stream.read(int.from_bytes(size, "little")) if len(size) == 8 else None


def write_frame(stream: IO[bytes], content: bytes) -> None:
    """Write one frame."""
    stream.write(len(content).to_bytes(8, "little"))
    stream.write(content)
    stream.flush()


def pack(measured: Measured) -> bytes:
    """Return the numbers as a frame's content."""
    rows = np.array([len(measured.tokens)], dtype=_NUMBER)
    columns = (measured.tokens, measured.characters, measured.output_tokens, measured.block_counts)
    return b"".join([rows.tobytes(), *(c.tobytes() for c in columns), measured.block_ids.tobytes()])


def unpack(content: bytes) -> Measured:
    """Return the numbers of a frame's content."""
    numbers = np.frombuffer(content, dtype=_NUMBER)
    rows = int(numbers[0])
    tokens, characters, outputs, counts = numbers[1 : 1 + 4 * rows].reshape(4, rows)
    return Measured(tokens, characters, outputs, counts, numbers[1 + 4 * rows :].view(np.uint64))


def main() -> None:
    """Serve frames from stdin to stdout until the parent closes the pipe."""
    # The other end's allocation tricks must not take the machine's memory.
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    tokens: Tokens | None = None
    while (frame := read_frame(source)) is not None:
        content = json.loads(frame)
        try:
            if tokens is None:
                block_size = content["block_size"]
                template = content["template"] and ChatTemplate(**content["template"])
                tokens = Tokens(Path(content["tokenizer"]), template)
                answer = b"+"
            else:
                answer = b"+" + pack(measure(content, tokens, block_size))
        except TemplateError as error:
            answer = b"-" + f"the chat template failed: {error}".encode()
        except MemoryError:
            answer = b"-it took more memory than a text worker may have"
        except Exception as error:  # tokenizers raises bare Exception
            answer = b"-" + f"{type(error).__name__}: {error}"[:300].encode()
        write_frame(sink, answer)


if __name__ == "__main__":
    main()
