"""`chunkwise serve` up to the moment when vLLM takes over, which a stand-in shows."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Run

pytestmark = pytest.mark.slow

STAND_IN = """
import json, os, signal, sys
print(json.dumps({"pid": os.getpid(), "argv": sys.argv[1:], "env": dict(os.environ)}), flush=True)
if "--wait" in sys.argv:
    signal.pause()
sys.exit(7)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    home = tmp_path / "my model"
    home.mkdir()
    (home / "config.json").write_text("{}")
    return home


@pytest.fixture
def stand_in(tmp_path: Path) -> dict[str, str]:
    """An environment whose `vllm` tells what it was started with, under any of its names."""
    for inner in ("cli/main.py", "openai/api_server.py"):
        file = tmp_path / "path" / "vllm" / "entrypoints" / inner
        file.parent.mkdir(parents=True)
        file.write_text(STAND_IN)
    (tmp_path / "path" / "vllm" / "__init__.py").touch()
    path = os.pathsep.join(filter(None, [str(tmp_path / "path"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def started(environment: dict[str, str], *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "chunkwise", "serve", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_it_becomes_the_server(model: Path, stand_in: dict[str, str]) -> None:
    args = ["--port", "8001", "--api-key", "s3cret", "--chat-template", "{{ a }}; $(b) 'c'"]
    process = started(stand_in, str(model), "--itl", "50ms", "--", *args)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 7, err
    *said, last = out.strip().splitlines()
    seen = json.loads(last)
    assert seen["pid"] == process.pid
    assert seen["argv"][-len(args) :] == args
    assert str(model) in seen["argv"]
    assert (seen["env"]["CHUNKWISE"], seen["env"]["CHUNKWISE_ITL"]) == ("on", "50ms")
    assert "s3cret" not in "".join(said) + err
    shown = next(line for line in said if "vllm serve" in line)
    assert f"vllm serve '{model}' --scheduler-cls chunkwise.PacedScheduler" in shown


def test_a_signal_is_the_servers(model: Path, stand_in: dict[str, str]) -> None:
    process = started(stand_in, str(model), "--", "--wait")
    with process:
        assert process.stdout
        said = iter(process.stdout.readline, "")
        assert any(line.startswith('{"pid"') for line in said)
        process.send_signal(signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM


def test_a_dry_run_only_prints(chunkwise: Run, model: Path) -> None:
    shown = chunkwise("serve", str(model), "--ttft", "1s", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    for words in ("--host 127.0.0.1", "CHUNKWISE_TTFT=1s", "only this machine", "The same by hand"):
        assert words in shown.stdout
    args = ("--dry-run", "--json", "--", "--api-key", "s3cret")
    found = json.loads(chunkwise("serve", str(model), "--observe", *args).stdout)
    assert found["schema"] == "chunkwise.serve/1"
    assert found["mode"] == "observe"
    assert found["command"][-2:] == ["--api-key", "***"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["MODEL", "--itl", "fast"], "not a duration"),
        (["MODEL", "--settings", "BAD"], "not a setting that Chunkwise takes"),
        (["MODEL/none"], "There is no model at"),
        (["MODEL", "--port", "8001"], "`--port` is no option"),
        (["MODEL", "--api-key=s3cret"], "`--api-key` is no option"),
        (["MODEL", "--json"], "--dry-run"),
        (["MODEL", "--", "--scheduler-cls", "mine.Own"], "one scheduler"),
    ],
)
def test_mistakes_end_it_before_anything_is_loaded(
    model: Path, tmp_path: Path, args: list[str], said: str
) -> None:
    (tmp_path / "bad.yaml").write_text("trust_remote_code: true\n")
    words = [
        w.replace("MODEL", str(model)).replace("BAD", str(tmp_path / "bad.yaml")) for w in args
    ]
    code = (
        "import atexit, sys; from chunkwise.cli import main; sys.argv[0] = 'chunkwise'\n"
        "atexit.register(lambda: print('loaded', *{'torch', 'vllm'} & set(sys.modules)))\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "s3cret" not in done.stderr
    assert done.stdout == "loaded\n"
