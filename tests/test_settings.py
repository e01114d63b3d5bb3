import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.strategies import broken_values, valid_values

from chunkwise.errors import UserMistake
from chunkwise.settings import MAX_FILE_BYTES, Settings


@given(valid_values())
def test_round_trip_through_yaml(values: dict[str, Any]) -> None:
    settings = Settings(**values)
    assert Settings.parse(yaml.safe_load(settings.to_yaml())) == settings


@given(valid_values())
def test_command_line_survives_a_shell(values: dict[str, Any]) -> None:
    settings = Settings(**values)
    command = settings.to_command("a model; rm -rf $HOME")
    assert shlex.split(command) == ["vllm", "serve", "a model; rm -rf $HOME", *settings.to_args()]


@given(broken_values())
def test_every_broken_rule_is_refused_with_a_sentence(values: dict[str, Any]) -> None:
    with pytest.raises(UserMistake) as caught:
        Settings.parse(values)
    assert str(caught.value).startswith("In the settings: ")
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"max_num_batched_tokens": 8, "max_num_seqs": 16}, "below max_num_seqs"),
    ({"max_num_batched_tokens": 0}, "greater than or equal to 1"),
    ({"max_num_batched_tokens": "2048"}, "valid integer"),
    ({"max_num_batched_tokens": True}, "valid integer"),
    ({"max_num_batched_tokens": 64, "max_num_scheduled_tokens": 65}, "above max_num_batched"),
    ({"max_num_seqs": 4, "max_num_active_seqs": 5}, "above max_num_seqs"),
    ({"max_model_len": 100, "long_prefill_token_threshold": 101}, "above max_model_len"),
    (
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 99, "max_model_len": 100},
        "must fit one step",
    ),
    ({"gpu_memory_utilization": 0.0}, "greater than 0"),
    ({"watermark": 1.0}, "less than 1"),
    ({"watermark": float("nan")}, "less than 1"),
    ({"scheduling_policy": "lifo"}, "'fcfs' or 'priority'"),
    ({"kv_cache_dtype": "fp8; rm"}, "pattern"),
    ({"cudagraph_capture_sizes": [1, 2], "max_cudagraph_capture_size": 3}, "not the largest"),
    ({"trust_remote_code": True}, "not a setting that Chunkwise takes"),
    ({"scheduler_cls": "evil.Scheduler"}, "not a setting that Chunkwise takes"),
]


@pytest.mark.parametrize(("values", "words"), INVALID)
def test_each_mistake_is_a_sentence(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UserMistake, match=words) as caught:
        Settings.parse(values, source="a.yaml")
    assert str(caught.value).startswith("In a.yaml: ")
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@given(
    st.dictionaries(
        st.text(max_size=20), st.recursive(st.none() | st.text(), st.lists, max_leaves=5)
    )
)
def test_garbage_never_escapes_as_another_error(values: dict[str, Any]) -> None:
    if values:
        with pytest.raises(UserMistake) as caught:
            Settings.parse(values)
        assert len(str(caught.value)) < 2000


def test_python_users_get_a_value_error() -> None:
    with pytest.raises(ValidationError, match="below max_num_seqs"):
        Settings(max_num_batched_tokens=1, max_num_seqs=2)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().max_num_seqs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a: [", "not valid YAML"),
        (b"\xff\xfe\x00", "not valid YAML"),
        (b"- 1\n- 2\n", "name: value"),
        (b"1: 2\n", "name: value"),
        (b"!!python/object/apply:os.system [ls]", "not valid YAML"),
        (b"x" * (MAX_FILE_BYTES + 1), "not a settings file"),
        # Aliases that would expand to millions of items if anything echoed them.
        (
            b"a: &a [x,x,x,x,x,x,x,x]\n"
            + b"".join(
                f"{new}: &{new} [{','.join([f'*{old}'] * 8)}]\n".encode()
                for old, new in zip("abcdefg", "bcdefgh", strict=True)
            ),
            "not a setting",
        ),
        (b"[" * 20000, "not valid YAML"),
    ],
)
def test_hostile_files(tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_bytes(text)
    with pytest.raises(UserMistake, match=words) as caught:
        Settings.from_yaml(path)
    assert len(str(caught.value)) < 2000


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="No such file"):
        Settings.from_yaml(tmp_path / "none.yaml")


def test_empty_file_means_defaults(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").touch()
    assert Settings.from_yaml(tmp_path / "empty.yaml") == Settings()
    assert Settings().to_args() == []
    assert yaml.safe_load(Settings().to_yaml()) == {}


def test_booleans_and_lists_on_the_command_line() -> None:
    settings = Settings(enable_chunked_prefill=False, cudagraph_capture_sizes=(1, 8))
    assert settings.to_args() == [
        "--no-enable-chunked-prefill",
        "--cudagraph-capture-sizes",
        "1",
        "8",
    ]
