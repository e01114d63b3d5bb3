import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkwise.cost.shape import MAX_FILE_BYTES, ModelShape, in_dtype, read_shape, shape_of
from chunkwise.errors import UserMistake

LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def test_a_known_model_has_its_known_size() -> None:
    shape = shape_of(LLAMA_8B)
    assert shape.weights == pytest.approx(8.03e9, rel=0.001)
    assert (shape.head_dim, shape.kv_numbers, shape.dtype_bytes) == (128, 2048, 2)


def test_the_dtype_that_vllm_would_run() -> None:
    shape = shape_of(LLAMA_8B | {"torch_dtype": "float32"})
    assert in_dtype(shape).dtype == "bfloat16"
    assert in_dtype(shape, "float32").dtype == "float32"
    assert in_dtype(shape_of(LLAMA_8B | {"torch_dtype": "float16"})).dtype == "float16"
    with pytest.raises(UserMistake, match="is not a dtype"):
        in_dtype(shape, "int3")


def test_other_families_names() -> None:
    gpt2 = {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
        "tie_word_embeddings": True,
    }
    shape = shape_of(gpt2)
    assert (shape.layers, shape.inner, shape.max_len) == (12, 3072, 1024)
    assert shape.weights == pytest.approx(124e6, rel=0.01)


def test_experts_count_as_weights_but_few_are_visited() -> None:
    mixtral = LLAMA_8B | {
        "vocab_size": 32000,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }
    shape = shape_of(mixtral)
    assert shape.weights == pytest.approx(46.7e9, rel=0.005)
    assert shape.inner == 2 * 14336


def test_compressed_kv_and_windows_and_towers() -> None:
    mla = shape_of(LLAMA_8B | {"kv_lora_rank": 512, "qk_rope_head_dim": 64})
    assert (mla.mla, mla.kv_numbers) == (True, 576)
    kinds = ["sliding_attention", "full_attention"] * 16
    assert shape_of(LLAMA_8B | {"layer_types": kinds}).windowed_layers == 16
    assert shape_of({"text_config": LLAMA_8B, "dtype": "float32"}).vocab == 128256


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": -1}, "hidden_size"),
        ({"hidden_size": "many"}, "hidden_size"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"vocab_size": None}, "vocab_size"),
        ({"model_type": "mamba2"}, "keeps a state"),
        ({"layer_types": ["linear_attention"] * 32}, "keeps a state"),
    ],
)
def test_what_cannot_be_counted_is_a_sentence(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UserMistake, match=words):
        shape_of(LLAMA_8B | change)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.json"
    with pytest.raises(UserMistake, match=r"no config\.json"):
        read_shape(str(tmp_path))
    file.write_text(json.dumps(LLAMA_8B))
    assert read_shape(str(tmp_path)) == read_shape(str(file)) == shape_of(LLAMA_8B)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with pytest.raises(UserMistake, match="no model at who/what"):
        read_shape("who/what")
    cached = tmp_path / "hf" / "hub" / "models--who--what" / "snapshots" / "abc"
    cached.mkdir(parents=True)
    file.rename(cached / "config.json")
    assert read_shape("who/what") == shape_of(LLAMA_8B)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{" * 100_000, "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[1]", "does not hold"),
        (b" " * (MAX_FILE_BYTES + 1), "over 4.0 MiB"),
    ],
)
def test_hostile_files(tmp_path: Path, text: bytes, words: str) -> None:
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(UserMistake, match=words):
        read_shape(str(tmp_path))


@given(
    st.dictionaries(
        st.sampled_from([*LLAMA_8B, "head_dim", "num_experts"]),
        st.none()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.booleans()
        | st.lists(st.integers(), max_size=2),
    )
)
def test_any_values_give_a_shape_or_a_sentence(change: dict[str, Any]) -> None:
    try:
        shape = shape_of(LLAMA_8B | change)
    except UserMistake:
        return
    assert isinstance(shape, ModelShape)
    assert shape.weights > 0
