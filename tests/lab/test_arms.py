"""Arms: what people write, what vLLM gets, and what is refused."""

from pathlib import Path

import pytest

from chunkwise.errors import UserMistake
from chunkwise.lab.arms import Arm, Machine, arguments, parse, refuse_same_names, settled

MACHINE = Machine(
    version="0.32.0",
    device="cpu",
    on_cpu=True,
    cores=2,
    budget=2048,
    seqs=128,
    context=8192,
    accepted=frozenset(
        {
            "max_num_batched_tokens",
            "max_num_seqs",
            "long_prefill_token_threshold",
            "enable_chunked_prefill",
            "enable_prefix_caching",
            "additional_config",
        }
    ),
    dummy=True,
)


@pytest.mark.parametrize(
    ("said", "name", "args"),
    [
        ("default", "default", ""),
        ("off", "off", "--max-num-batched-tokens 8192 --no-enable-chunked-prefill"),
        ("static:2048", "static:2048", "--max-num-batched-tokens 2048"),
        (
            "static:512/128",
            "static:512/128",
            "--max-num-batched-tokens 512 --long-prefill-token-threshold 128",
        ),
        # vLLM refuses a budget below the requests that may run.
        ("static:64", "static:64", "--max-num-batched-tokens 64 --max-num-seqs 64"),
        ("mine=--max-num-seqs 8", "mine", "--max-num-seqs 8"),
        ("mine=--max_num_seqs=8", "mine", "--max_num_seqs=8"),
        ("off2=--no-enable-prefix-caching", "off2", "--no-enable-prefix-caching"),
        ("dot=--additional-config.x 1", "dot", "--additional-config.x 1"),
    ],
)
def test_forms(said: str, name: str, args: str) -> None:
    arm = settled(parse(said), MACHINE)
    assert arm.name == name
    assert " ".join(arm.args) == args
    assert Arm.from_json(name, arm.to_json()) == arm


def test_a_given_server() -> None:
    arm = settled(parse("theirs=http://127.0.0.1:8000/"), MACHINE)
    assert (arm.name, arm.url, arm.args) == ("theirs", "http://127.0.0.1:8000", ())
    assert Arm.from_json("theirs", arm.to_json()) == arm


def test_a_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "gentle.yaml"
    file.write_text("max_num_batched_tokens: 1024\n")
    assert settled(parse(str(file)), MACHINE).args == ("--max-num-batched-tokens", "1024")
    assert parse(str(file)).name == "gentle"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("nothing", "best-static"),
        ("static:", "best-static"),
        ("static:0", "max_num_batched_tokens"),
        ("=--max-num-seqs 8", "NAME=--any"),
        ("a=", "no vLLM argument"),
        ("a=rm -rf /", "no vLLM argument"),
        ("a=--max-num-seqs '8", "quotation"),
        ("a=--host 0.0.0.0", "leave out --host"),
        ("a=--api-key secret", "leave out --api-key"),
        ("a=--api_key=secret", "leave out --api-key"),
        ("a=--max-num-seqs 8 -tp 2", "long name"),
        ("a=ftp://x", "no vLLM argument"),
        ("missing.yaml", "Cannot read"),
    ],
)
def test_a_wrong_arm_is_one_sentence(said: str, words: str) -> None:
    with pytest.raises(UserMistake, match=words) as caught:
        parse(said)
    assert "secret" not in str(caught.value)


def test_arguments_that_this_vllm_lacks() -> None:
    with pytest.raises(UserMistake, match="has no argument --swap-space: preempted"):
        settled(parse("a=--swap-space 4"), MACHINE)
    with pytest.raises(UserMistake, match="long name"):
        arguments("--max-num-seqs 8 -O3", "--server")


def test_names_must_differ() -> None:
    with pytest.raises(UserMistake, match="named `default`"):
        refuse_same_names([parse("default"), parse("off"), parse("default=--max-num-seqs 8")])
