"""Tokenizing text with the model's own tokenizer, over several processes.

`find_tokenizer` looks where models are kept on this machine and never on the
network. `TokenPool` hands batches to text workers and returns the numbers in
order. Invariant: at most two batches per worker are under way, a worker that
does not answer within `PATIENCE` seconds is ended, and no worker outlives the
pool.
"""

import json
import os
import re
import select
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import chunkwise
from chunkwise.errors import EngineTrouble, UserMistake
from chunkwise.workload.chat import LONGEST_TEMPLATE, ChatTemplate
from chunkwise.workload.measure import Measured
from chunkwise.workload.worker import read_frame, unpack, write_frame

PATIENCE = 120.0
MOST_WORKERS = 16
# In each worker. Two share the tokenizer's tables, which is easier on the caches than
# two processes; with more, the part of the work that Python does would hold them up.
THREADS = 2
LARGEST_CONFIG = 16 * 2**20

Batch = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class FoundTokenizer:
    """A tokenizer on this machine and the chat template that came with it."""

    file: Path
    template: ChatTemplate | None


def find_tokenizer(name: str) -> FoundTokenizer:
    """Find it by file, model directory, or name in the local Hugging Face cache."""
    path = Path(name).expanduser()
    if path.is_file():
        return FoundTokenizer(path, _template(path.parent))
    for home in (path, *_cached(name)):
        if (home / "tokenizer.json").is_file():
            return FoundTokenizer(home / "tokenizer.json", _template(home))
    raise UserMistake(
        f"No tokenizer.json for `{name[:200]}`: not a file or model directory, nor a model in the "
        f"local Hugging Face cache. Name its directory, or count characters ÷ 4 with --estimate."
    )


def _cached(name: str) -> Iterator[Path]:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return
    home = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub")
    model = hub / f"models--{name.replace('/', '--')}"
    main = model / "refs" / "main"
    if main.is_file():
        yield model / "snapshots" / main.read_text()[:80].strip()
    yield from sorted(model.glob("snapshots/*"))


def _template(home: Path) -> ChatTemplate | None:
    config: dict[str, Any] = {}
    if (file := home / "tokenizer_config.json").is_file():
        if file.stat().st_size > LARGEST_CONFIG:
            raise UserMistake(f"{file} is over {LARGEST_CONFIG // 2**20} MiB: not a config.")
        try:
            config = json.loads(file.read_text())
        except ValueError as error:
            raise UserMistake(f"{file} is not valid JSON ({str(error)[:100]}).") from None
    source: Any = config.get("chat_template") if isinstance(config, dict) else None
    if (file := home / "chat_template.jinja").is_file():
        with file.open() as opened:
            source = opened.read(LONGEST_TEMPLATE + 1)
    if isinstance(source, list):  # several, by name
        named = {item.get("name"): item.get("template") for item in source if type(item) is dict}
        source = named.get("default")
    if not isinstance(source, str):
        return None
    if len(source) > LONGEST_TEMPLATE:
        raise UserMistake(f"The chat template in {home} is over {LONGEST_TEMPLATE:,} characters.")
    tokens: dict[str, str] = {}
    for name, value in config.items():
        if name.endswith("_token"):
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str):
                tokens[name] = value
    return ChatTemplate(source, tokens)


class TokenPool:
    """Text workers. Usage: `with TokenPool(found, 16) as pool: pool.measured(batches)`."""

    def __init__(self, found: FoundTokenizer, block_size: int, workers: int | None = None) -> None:
        cores = len(os.sched_getaffinity(0))
        count = workers or min(MOST_WORKERS, -(-cores // THREADS))
        start = {
            "tokenizer": str(found.file),
            "template": None if found.template is None else asdict(found.template),
            "block_size": block_size,
        }
        self._children = [_start_child() for _ in range(count)]
        self._free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._threads = ThreadPoolExecutor(count)
        try:
            for child in self._children:
                self._free.put(child)
                _send(child, start)
            for child in self._children:
                _receive(child)
        except BaseException:
            self.close()
            raise

    def measured(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Measured]]:
        """Yield each batch with its numbers, in order."""
        under_way: deque[tuple[Batch, Future[Measured]]] = deque()
        for batch in batches:
            under_way.append((batch, self._threads.submit(self._measure, batch)))
            if len(under_way) > 2 * len(self._children):
                done, future = under_way.popleft()
                yield done, future.result()
        while under_way:
            done, future = under_way.popleft()
            yield done, future.result()

    def close(self) -> None:
        """End the workers."""
        for child in self._children:
            child.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for child in self._children:
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()

    def _measure(self, batch: Batch) -> Measured:
        child = self._free.get()
        try:
            rows = [{"prompt": row["prompt"], "output": row["output"]} for row in batch]
            _send(child, rows)
            return unpack(_receive(child))
        finally:
            self._free.put(child)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def _start_child() -> subprocess.Popen[bytes]:
    # -P and an absolute path: the same package as here, whatever the current
    # directory holds.
    home = str(Path(chunkwise.__file__).absolute().parents[1])
    paths = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    variables = {
        **os.environ,
        "PYTHONPATH": paths,
        "RAYON_NUM_THREADS": str(THREADS),
        "TOKENIZERS_PARALLELISM": "true",
    }
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "chunkwise.workload.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=variables,
    )


def _send(child: subprocess.Popen[bytes], content: Any) -> None:
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # whoever waits for the answer says so
        write_frame(child.stdin, json.dumps(content).encode())


def _receive(child: subprocess.Popen[bytes]) -> bytes:
    assert child.stdout is not None
    if not select.select([child.stdout], [], [], PATIENCE)[0]:
        # Not the user's mistake alone: the worker is lost, so the run ends here.
        raise EngineTrouble(f"Tokenizing a batch of prompts took over {PATIENCE:g} s; stopped.")
    answer = read_frame(child.stdout)
    if not answer:
        raise EngineTrouble("A text worker ended unexpectedly, perhaps for lack of memory.")
    if answer[:1] == b"-":
        raise UserMistake(f"The text could not be tokenized: {answer[1:].decode()}.")
    return answer[1:]
