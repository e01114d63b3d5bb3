"""One live server that paces: its own process for the engine, HTTP in front."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.engine.live import complete, metrics, server

from chunkwise.engine.orders import CLASS_ARGUMENT

pytestmark = pytest.mark.engine


def test_a_live_server_that_paces(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    prompts = [[5 + n] * (30 if n % 4 else 3000) for n in range(24)]
    given = {"CHUNKWISE": "on", "CHUNKWISE_ITL": "60ms", "CHUNKWISE_TTFT": "2s"}
    given["CHUNKWISE_CLASSES"] = "chat,batch:ttft=none:itl=none"
    with server(folder, **given) as (url, log):

        def ask(number: int) -> int:
            named = {"vllm_xargs": {CLASS_ARGUMENT: "batch" if number % 4 == 0 else "chat"}}
            answer = complete(url, prompts[number], 40, **named)
            return int(answer["usage"]["completion_tokens"])

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ask, range(24))) == [40] * 24
        time.sleep(2.5)
        shown = metrics(url)
    said = log.read_text()
    assert said.count("Chunkwise paces this engine") == 1
    assert "could not" not in said
    assert "stops pacing" not in said
    if not entry_points(group="vllm.general_plugins", name="chunkwise"):
        pytest.skip("the plug-in's entry point is not installed: run scripts/setup")
    assert 'chunkwise_pacing_acting{engine="0"} 1.0' in shown
    mixed = re.findall(
        r'^chunkwise_pacing_step_shares_total{[^}]*le="\+Inf"} (\S+)$', shown, re.MULTILINE
    )
    assert sum(map(float, mixed)) > 10
