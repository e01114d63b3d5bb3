"""`chunkwise serve` beside vLLM's own server: the same answers, routes, signals and end."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from tests.engine.live import running, wait_healthy

from chunkwise.engine.serve import launch
from chunkwise.lab.server import free_port
from chunkwise.readers.capture import captures

pytestmark = pytest.mark.engine
KEY = "sk-s3cret"
ELSEWHERE = "127.0.0.2"  # loopback too, but not where we would bind by ourselves
ARGS = ["--served-model-name", "m", "--enforce-eager", "--max-model-len", "2048", "--seed", "0"]
ARGS += ["--max-num-seqs", "16", "--api-key", KEY, "--shutdown-timeout", "60"]
TOKENS = 40


@dataclass
class Live:
    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def client(self, key: str = KEY) -> Any:
        import httpx  # both come with vLLM, and take a second to load
        import openai

        direct = httpx.Client(trust_env=False)  # no proxy between us and loopback
        return openai.OpenAI(
            base_url=f"{self.url}/v1", api_key=key, max_retries=0, http_client=direct
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seen")


@pytest.fixture(scope="module")
def servers(smollm2: Path, folder: Path) -> Iterator[tuple[Live, Live]]:
    """Ours and vLLM's own, started at the same time because a start takes half a minute."""
    environment = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # Without a worker process of its own a server starts a third sooner.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "CHUNKWISE_DIR": str(folder),
    }
    theirs = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(smollm2)]
    ours = [sys.executable, "-m", "chunkwise", "serve", str(smollm2), "--itl", "50ms", "--"]
    ports = [free_port(), free_port()]
    with contextlib.ExitStack() as stack:
        found = []
        for command, port in zip((ours, theirs), ports, strict=True):
            words = [*command, *ARGS, "--host", ELSEWHERE, "--port", str(port)]
            process, log = stack.enter_context(running(words, environment))
            found.append(Live(process, f"http://{ELSEWHERE}:{port}", log))
        for live in found:
            wait_healthy(live.url, live.process, live.log)
        yield found[0], found[1]


def test_what_rays_actors_inherit(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.ray.ray_env import get_env_vars_to_copy

    ready = launch("m", itl="50ms", ttft="1s", environment={"CHUNKWISE_CLASSES": "chat"})
    for name, value in ready.environment.items():
        monkeypatch.setenv(name, value)
    assert len(ready.environment) == 5
    assert get_env_vars_to_copy() >= set(ready.environment)


@pytest.mark.parametrize("stream", [False, True])
def test_chat_and_completion(servers: tuple[Live, Live], stream: bool) -> None:
    said = []
    for live in servers:
        with live.client() as client:
            asked = {"model": "m", "max_tokens": 12, "temperature": 0, "stream": stream}
            messages = [{"role": "user", "content": "What is the capital of France?"}]
            chat = client.chat.completions.create(messages=messages, **asked)
            text = client.completions.create(prompt="One, two, three,", **asked)
            if stream:
                words = [part.choices[0].delta.content or "" for part in chat]
                assert len(words) > 5
                said.append(["".join(words), "".join(part.choices[0].text for part in text)])
            else:
                assert chat.usage.completion_tokens <= 12
                said.append([chat.choices[0].message.content, text.choices[0].text])
    ours, theirs = said
    assert ours == theirs
    assert all(ours)


def test_flags_pass_through(servers: tuple[Live, Live], folder: Path) -> None:
    import openai

    ours, theirs = servers
    with ours.client("wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
    assert listening(ours) == {ELSEWHERE}
    log = ours.log.read_text()
    assert KEY not in log
    assert "vllm serve" in log
    assert log.count("Chunkwise ") >= 1
    assert "Chunkwise " not in theirs.log.read_text()
    paths = []
    for live in servers:
        with urlopen(f"{live.url}/openapi.json", timeout=60) as answer:
            paths.append(sorted(json.load(answer)["paths"]))
    assert paths[0] == paths[1] != []
    (capture,) = captures(folder)
    assert capture.header.itl == 0.05


def listening(live: Live) -> set[str]:
    """Return the addresses at which the server holds its port.

    Asking the port itself at another address would meet whoever else has it there.
    """
    import psutil

    sockets = psutil.Process(live.process.pid).net_connections("tcp")
    held = [at.laddr for at in sockets if at.status == psutil.CONN_LISTEN]
    return {at.ip for at in held if at.port == urlsplit(live.url).port}


def test_sigterm_drains_as_vllm_does(servers: tuple[Live, Live]) -> None:
    """The last of the module: it ends both."""
    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(end, servers)
    assert ours == theirs
    assert ours[:3] == (0, "length", TOKENS)
    assert any("mode=drain" in line for line in ours[3])


def end(live: Live) -> tuple[int, str, int, list[str]]:
    """Ask it to stop while two requests are in flight; return how they and it ended."""
    asked = {"model": "m", "max_tokens": TOKENS, "extra_body": {"ignore_eos": True}}
    with live.client() as client, ThreadPoolExecutor(1) as pool:
        parts = client.completions.create(prompt="A story:", stream=True, **asked)
        next(parts)
        whole = pool.submit(client.completions.create, prompt="Once", **asked)
        for _ in range(5):
            next(parts)
        live.process.send_signal(signal.SIGTERM)
        *_, last = parts
        answer = whole.result(60)
    code = live.process.wait(60)
    said = re.findall(r"\[shutdown\] (API server: .*)", live.log.read_text())
    return code, last.choices[0].finish_reason, answer.usage.completion_tokens, said
