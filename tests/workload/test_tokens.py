import json
from pathlib import Path

import numpy as np
import pytest

from chunkwise.errors import UserMistake
from chunkwise.workload.analysis import analyze
from chunkwise.workload.chat import ChatRenderer, ChatTemplate, TemplateError
from chunkwise.workload.measure import Estimate, measure
from chunkwise.workload.tokens import TokenPool, find_tokenizer
from chunkwise.workload.worker import Tokens, pack, unpack

LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def asked(*prompts: object, output: str | None = None) -> list[dict[str, object]]:
    return [{"prompt": [prompt], "output": output} for prompt in prompts]


def test_a_models_directory_a_file_and_the_cache(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_tokenizer(str(model)).file == model / "tokenizer.json"
    assert find_tokenizer(str(model / "tokenizer.json")).template is not None
    snapshot = tmp_path / "hub" / "models--org--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
    refs = tmp_path / "hub" / "models--org--name" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    assert find_tokenizer("org/name").file == snapshot / "tokenizer.json"
    assert find_tokenizer("org/name").template is None


@pytest.mark.parametrize("name", ["org/absent", "/no/where", "../..", "a b"])
def test_no_tokenizer(name: str) -> None:
    with pytest.raises(UserMistake, match="--estimate"):
        find_tokenizer(name)


def test_several_templates_take_the_default(model: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
    templates = [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    found = find_tokenizer(str(tmp_path)).template
    assert found is not None
    assert found.source == "yes"


def test_counting_with_a_tokenizer(model: Path) -> None:
    found = find_tokenizer(str(model))
    tokens = Tokens(found.file, found.template)
    messages = {"messages": [{"role": "user", "content": "one two"}], "tools": None}
    batch = [*asked("a b c d e f", "x", "", output="so it is"), *asked(messages)]
    numbers = measure(batch, tokens, block_size=2)
    # One token a word or run of signs: "<|", "im_start", "|>", "user", "one", "two", …
    assert numbers.tokens.tolist() == [6, 1, 0, 13]
    assert numbers.characters.tolist()[:3] == [11, 1, 0]
    assert numbers.output_tokens.tolist() == [3, 3, 3, -1]
    assert numbers.block_counts.tolist() == [3, 0, 0, 6]
    again = unpack(pack(numbers))
    assert all(np.array_equal(getattr(again, n), getattr(numbers, n)) for n in numbers.__slots__)


def test_blocks_follow_the_text_not_the_batch(model: Path) -> None:
    found = find_tokenizer(str(model))
    for reader in (Tokens(found.file, found.template), Estimate()):
        one = measure(asked("the same words go here"), reader, 1).block_ids
        two = measure(asked("other", "the same words stop"), reader, 1)
        rest = two.block_ids[two.block_counts[0] :]
        assert one[:3].tolist() == rest[:3].tolist()
        assert one[-1] != rest[-1]


def test_the_estimate_is_a_quarter_of_the_characters() -> None:
    numbers = measure(asked("12345", output="123456789"), Estimate(), 16)
    assert numbers.tokens.tolist() == [2]
    assert numbers.output_tokens.tolist() == [3]


def test_a_pool_keeps_the_order_and_ends_its_workers(model: Path) -> None:
    batches = [asked(*(" ".join("w" * n) for n in range(k, k + 5))) for k in range(20)]
    with TokenPool(find_tokenizer(str(model)), 16, workers=2) as pool:
        children = list(pool._children)
        found = [numbers.tokens.tolist() for _, numbers in pool.measured(batches)]
    assert found == [list(range(k, k + 5)) for k in range(20)]
    assert all(child.returncode is not None for child in children)


def test_chat_messages_through_the_pool(model: Path, data: Path) -> None:
    result = analyze([str(data / "openai_log.jsonl")], tokenizer=str(model))
    [found] = result.profile.datasets
    assert not found.estimated
    assert found.output_kinds == {"known": 2, "limited": 1}
    # The shared system message is not a full block of 16 tokens.
    assert found.prefix.block_size == 16
    assert found.prompt.count == 3


def rendered(source: str, messages: list[dict[str, object]] | None = None) -> str:
    renderer = ChatRenderer(ChatTemplate(source, {"bos_token": "<s>"}))
    return renderer.render(messages or [{"role": "user", "content": "hi"}])


def test_a_template_gets_what_models_expect() -> None:
    assert rendered("{{ bos_token }}{{ messages[0]['content'] }}") == "<s>hi"
    assert rendered("{{ messages | tojson }}") == '[{"role": "user", "content": "hi"}]'
    assert rendered("{% if tools %}a{% endif %}{{ add_generation_prompt }}") == "True"
    assert len(rendered("{{ strftime_now('%Y') }}")) == 4
    assert (
        rendered("{% for i in range(9) %}{% if i > 1 %}{% break %}{% endif %}x{% endfor %}") == "xx"
    )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (LOOP, "ran for over"),
        ("{% for a in range(99999) %}{{ 'x' * 9999 }}{% endfor %}", "wrote over"),
        ("{{ range(10 ** 9) }}", "Range too big"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ 1 / 0 }}", "division"),
        ("{{ missing.field }}", "undefined"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{% broken", "tag"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "room"),
    ],
)
def test_a_hostile_template_ends_as_a_sentence(
    source: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chunkwise.workload.chat.MOST_SECONDS", 0.3)
    with pytest.raises(TemplateError, match=reason):
        rendered(source)


def test_workers_do_not_import_from_the_current_directory(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizers.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    with TokenPool(find_tokenizer(str(model)), 16, workers=1) as pool:
        [(_, numbers)] = pool.measured([asked("a b")])
    assert numbers.tokens.tolist() == [2]


@pytest.mark.engine
def test_a_real_model_counts_as_its_template_says(smollm2: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    file = tmp_path / "log.jsonl"
    file.write_text('{"messages": [{"role": "user", "content": "What is a chunk?"}]}\n')
    prompt = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nWhat is a chunk?<|im_end|>\n<|im_start|>assistant\n"
    )
    counted = len(Tokenizer.from_file(str(smollm2 / "tokenizer.json")).encode(prompt))
    [found] = analyze([str(file)], tokenizer=str(smollm2)).profile.datasets
    assert found.prompt.largest == counted
    assert found.longest_characters == len(prompt)
