"""Arms: what people write, what vLLM gets, and what is refused."""

from pathlib import Path

import pytest

from chunkwise.errors import UserMistake
from chunkwise.lab.arms import Arm, Machine, arguments, parse, refuse_same_names, settled
from chunkwise.slo import Slo

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
            "scheduler_cls",
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


@pytest.mark.parametrize(
    ("said", "targets"),
    [
        ("paced", {"ITL": "80.000ms", "TTFT": "2000.000ms"}),  # the comparison's promise
        ("paced:50ms", {"ITL": "50.000ms"}),
        ("paced:50ms/1.5s", {"ITL": "50.000ms", "TTFT": "1500.000ms"}),
    ],
)
def test_a_paced_server_has_our_plug_in_and_its_targets(said: str, targets: dict[str, str]) -> None:
    arm = settled(parse(said), MACHINE, Slo(ttft=2.0, itl=0.08))
    assert arm.name == said
    assert arm.args == ("--scheduler-cls", "chunkwise.PacedScheduler")
    expected = {f"CHUNKWISE_{name}": value for name, value in targets.items()}
    assert arm.environment == {"CHUNKWISE": "on", **expected}
    assert Arm.from_json(said, arm.to_json()) == arm


def test_a_file_of_runs_sets_nothing_but_our_own_variables() -> None:
    said = {**parse("paced:50ms").to_json(), "environment": {"CHUNKWISE": "on", "LD_PRELOAD": "x"}}
    assert Arm.from_json("paced", said).environment == {"CHUNKWISE": "on"}


def test_paced_without_a_promise_is_on() -> None:
    assert settled(parse("paced"), MACHINE).environment == {"CHUNKWISE": "on"}


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
        ("paced:", "best-static"),
        ("paced:fast", "not a duration"),
        ("paced:50ms/0s", "longer than nothing"),
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
