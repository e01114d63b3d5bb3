"""A live API server of vLLM on loopback, observed or not, that ends with the test."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from chunkwise.lab.models import timing_model
from chunkwise.lab.server import free_port


@contextlib.contextmanager
def server(folder: Path | str | None, *more: str, **environment: str) -> Iterator[tuple[str, Path]]:
    """Start it; with a folder, observed. Yields its address and the file of its log."""
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(timing_model("30m")), "--load-format", "dummy", "--seed", "0"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "m"]
    command += ["--enforce-eager", "--max-model-len", "8192", "--max-num-seqs", "64"]
    command += ["--block-size", "32", *more]
    given = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        **environment,
    }
    given.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    if folder is not None:
        command += ["--scheduler-cls", "chunkwise.PacedScheduler"]
        given = {"CHUNKWISE": "observe", "CHUNKWISE_ITL": "50ms", "CHUNKWISE_TTFT": "1s"} | given
        given["CHUNKWISE_DIR"] = str(folder)
    url = f"http://127.0.0.1:{port}"
    with running(command, given) as (process, log):
        wait_healthy(url, process, log)
        yield url, log


@contextlib.contextmanager
def running(
    command: list[str], environment: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Start a server's process; yields it and the file of its log. Nothing of it is left."""
    handle, name = tempfile.mkstemp(prefix="chunkwise-live-", suffix=".log")
    with os.fdopen(handle, "wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=environment, start_new_session=True
        )
    try:
        yield process, Path(name)
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when it answers; fail with its log when it ends instead."""
    for _ in range(600):
        with contextlib.suppress(OSError), urlopen(f"{url}/health", timeout=5):
            return
        if process.poll() is not None:
            break
        time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])


def complete(url: str, prompt: str | list[int], tokens: int, **more: Any) -> dict[str, Any]:
    """Ask for a completion of exactly so many tokens."""
    body = {"model": "m", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
    body |= {"temperature": 0, **more}
    asked = Request(
        f"{url}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urlopen(asked, timeout=120) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def metrics(url: str) -> str:
    """What the server shows at `/metrics`."""
    with urlopen(f"{url}/metrics", timeout=60) as answer:
        return str(answer.read().decode())
