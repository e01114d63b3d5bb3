"""One live server: its own process for the engine, HTTP in front, the plug-in inside."""

import re
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.engine.live import complete, metrics, server

from chunkwise.engine.orders import CLASS_ARGUMENT
from chunkwise.observed import Request, Step
from chunkwise.readers.capture import captures

pytestmark = pytest.mark.engine
SECRET = "the launch code is tangerine"


def test_a_live_server_under_observation(tmp_path: Path) -> None:
    folder = tmp_path / "seen"
    prompts: list[str | list[int]] = [[5] * 64 + [7 + n] * (10 + 40 * n) for n in range(11)]
    prompts.append(SECRET)
    with server(folder, CHUNKWISE_CLASSES="chat") as (url, log):
        with ThreadPoolExecutor(4) as pool:
            arguments = {"vllm_xargs": {CLASS_ARGUMENT: "chat"}}
            answers = list(pool.map(lambda prompt: complete(url, prompt, 12, **arguments), prompts))
        time.sleep(2.5)
        shown = metrics(url)
    usages = [answer["usage"] for answer in answers]

    (capture,) = captures(folder)
    records = list(capture.records())
    requests = sorted(record for record in records if isinstance(record, Request))
    steps = [record for record in records if isinstance(record, Step)]
    assert sorted((r.prompt, r.output) for r in requests) == sorted(
        (usage["prompt_tokens"], usage["completion_tokens"]) for usage in usages
    )
    assert {request.name for request in requests} == {"chat"}
    assert [step.number for step in steps] == list(range(len(steps)))
    hits = re.findall(r"^vllm:prefix_cache_hits_total{[^}]*} (\S+)$", shown, re.MULTILINE)
    assert sum(request.cached for request in requests) == sum(map(float, hits)) > 0

    (file,) = folder.iterdir()
    raw = zlib.decompressobj(wbits=31).decompress(file.read_bytes())
    assert b'"schema"' in raw
    assert b"tangerine" not in raw
    said = log.read_text()
    assert said.count("Chunkwise observes this engine") == 1
    assert "could not" not in said

    if not entry_points(group="vllm.general_plugins", name="chunkwise"):
        pytest.skip("the plug-in's entry point is not installed: run scripts/setup")
    counted = re.findall(r"^chunkwise_step_seconds_count{[^}]*} (\S+)$", shown, re.MULTILINE)
    assert sum(map(float, counted)) == len(steps)
    assert 'class="chat"' in shown
