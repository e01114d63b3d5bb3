import json
from pathlib import Path

import polars as pl
import pytest

from chunkwise.errors import UserMistake
from chunkwise.workload import readers
from chunkwise.workload.profile import DatasetProfile, profile_of
from chunkwise.workload.readers import files_in, open_address, open_file
from chunkwise.workload.text_workload import EstimateMeter, Reading

ESTIMATE = Reading(estimate=True, meter=lambda: EstimateMeter(16))


def read(path: Path, reading: Reading = ESTIMATE) -> pl.DataFrame:
    return pl.concat(open_file(path, path.name, reading).batches())


def test_azure(data: Path) -> None:
    frame = read(data / "azure_conv_200.csv", Reading())
    assert frame.columns == ["arrival_s", "prompt_tokens", "output_tokens", "output_kind"]
    assert frame.row(1) == (pytest.approx(4.314579), 396, 109, "known")
    assert len(frame) == 200


def test_azure_with_a_time_zone(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10T00:00:01.509930+00:00,2399,6\n"
    )
    assert read(file, Reading())["arrival_s"].to_list() == [0, pytest.approx(1.5)]


def test_mooncake(data: Path) -> None:
    workload = open_file(data / "mooncake_120.jsonl", "m", Reading())
    frame = workload.frame().collect()
    assert workload.block_size == 512
    assert frame["prompt_tokens"][0] == 6758
    assert frame["prefix_blocks"][0].to_list() == list(range(14))
    assert frame["arrival_s"].max() < 120
    assert frame["dataset"].unique().to_list() == ["m"]


def test_mooncake_as_one_array(data: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (data / "mooncake_120.jsonl").read_text().splitlines()]
    file = tmp_path / "m.json"
    file.write_text(json.dumps(rows))
    array, lines = read(file, Reading()), read(data / "mooncake_120.jsonl", Reading())
    assert array.equals(lines)


def test_block_ids_may_use_all_bits(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps({"input_length": 600, "hash_ids": [1, 2**64 - 1]}))
    assert read(file, Reading())["prefix_blocks"][0].to_list() == [1, 2**64 - 1]
    file.write_text('{"input_length": 600, "hash_ids": [-1, 5]}\n' * 2)
    assert profile_of(open_file(file, "x", Reading())).prefix.seen_blocks == 2


def test_burstgpt(data: Path) -> None:
    found = profile_of(open_file(data / "burstgpt.csv", "b", Reading()))
    assert found.layout == "BurstGPT trace"
    assert found.prompt.largest == 1360
    assert found.classes == {"Conversation log": 4, "API log": 2}
    assert found.arrivals.seconds == 253


def test_vllm_custom(data: Path) -> None:
    frame = read(data / "vllm_custom.jsonl")
    assert frame["prompt_chars"][0] == len("What is the capital of India?")
    assert frame["prompt_tokens"][0] == 8  # 29 characters ÷ 4, rounded up
    assert frame["output_tokens"].to_list() == [10, 24, 40]
    assert frame["output_kind"].unique().to_list() == ["known"]


def test_sharegpt(data: Path) -> None:
    frame = read(data / "sharegpt.json")
    assert frame["prompt_chars"].to_list() == [58, 11]
    assert frame["output_tokens"].to_list() == [8, 2]
    assert frame["output_kind"].to_list() == ["estimated"] * 2


def test_chat_log(data: Path) -> None:
    frame = read(data / "openai_log.jsonl")
    assert frame["arrival_s"].to_list() == [0, 2, 3.5]
    assert frame["output_tokens"].to_list() == [64, 17, 8]
    assert frame["output_kind"].to_list() == ["limited", "known", "estimated"]
    assert frame["prompt_chars"].to_list()[2] == 2  # the answer is not part of the prompt


def test_batch_file(data: Path) -> None:
    frame = read(data / "openai_batch.jsonl")
    assert frame["output_tokens"].to_list() == [32, 32]
    assert frame["prompt_chars"].to_list() == [23, 23]


def test_plain_columns_and_the_note(data: Path) -> None:
    workload = open_file(data / "questions.csv", "q", ESTIMATE)
    assert "--column options,question" in workload.notes[0]
    joined = Reading(("question", "options", "absent"), estimate=True, meter=ESTIMATE.meter)
    frame = read(data / "questions.csv", joined)
    assert frame["prompt_chars"][0] == len("Which planet is the largest?\nA. Mars\nB. Jupiter")


@pytest.mark.parametrize("form", ["parquet", "csv", "ndjson"])
def test_text_in_every_form_of_table(tmp_path: Path, form: str) -> None:
    file = tmp_path / "data"  # the suffix plays no part
    frame = pl.DataFrame({"id": ["a", "b"], "text": ["One two.", 'Three, four; "five".']})
    getattr(frame, f"write_{form}")(file)
    assert read(file)["prompt_chars"].to_list() == [8, 20]


def test_only_what_is_needed_of_a_table_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.parquet"
    pl.DataFrame({"picture": [b"x" * 99], "prompt": ["hello"], "max_tokens": [7]}).write_parquet(
        file
    )
    rows = []
    whole = readers.texts.batches
    monkeypatch.setattr(
        readers.texts,
        "batches",
        lambda found, *rest: whole((rows.append(dict(row)) or row for row in found), *rest),
    )
    assert read(file)["output_tokens"].to_list() == [7]
    assert rows == [{"prompt": "hello", "max_tokens": 7}]


def test_lengths_in_parquet(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    pl.DataFrame({"arrival_s": [0, 1], "prompt_tokens": [7, 9], "extra": ["a", "b"]}).write_parquet(
        file
    )
    assert read(file, Reading()).rows() == [(0.0, 7), (1.0, 9)]


@pytest.mark.parametrize("name", ["n.csv", "n.jsonl"])
def test_a_named_column_of_numbers_is_the_length(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(
        "n_ctx,b\n12,x\n14,y\n" if name == "n.csv" else '{"n_ctx": 12}\n{"n_ctx": 14}\n'
    )
    frame = read(file, Reading(columns=("n_ctx",)))
    assert frame["prompt_tokens"].to_list() == [12, 14]


def test_evaluation_rows_with_turns_of_messages(tmp_path: Path) -> None:
    file = tmp_path / "bfcl.json"
    rows = [{"id": 1, "question": [[{"role": "user", "content": "abcd"}]], "function": [{"n": 1}]}]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert read(file)["prompt_chars"].to_list() == [4]
    named = Reading(("question", "function"), estimate=True, meter=ESTIMATE.meter)
    assert read(file, named)["prompt_chars"].to_list() == [4 + 1 + len('[{"n": 1}]')]


def test_objects_over_several_lines(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps({"prompt": "a b"}, indent=2) + "\n" + json.dumps({"prompt": "c"}))
    assert read(file)["prompt_chars"].to_list() == [3, 1]


def test_many_objects_cross_the_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chunkwise.workload.json_values._PIECE", 16)
    file = tmp_path / "x.json"
    texts = ["é" * (n % 90) for n in range(1, 400)]
    file.write_text(json.dumps([{"prompt": text} for text in texts], ensure_ascii=False))
    assert read(file)["prompt_chars"].to_list() == [len(text) for text in texts]


def test_classes_of_text(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"prompt": "a", "request_class": "chat"}\n{"prompt": "b"}\n')
    found: DatasetProfile = profile_of(open_file(file, "x", ESTIMATE))
    assert found.classes == {"chat": 1, "": 1}


def test_unknown_columns_are_listed_with_the_flag(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"utterance": "hello", "n": 1}\n')
    with pytest.raises(UserMistake, match=r"`utterance`, `n`: .* --column utterance"):
        read(file)
    with pytest.raises(UserMistake, match=r"under `missing`"):
        read(file, Reading(("missing",), meter=ESTIMATE.meter))


def test_text_without_a_tokenizer(data: Path) -> None:
    with pytest.raises(UserMistake, match="--model, or count characters ÷ 4 with --estimate"):
        read(data / "sharegpt.json", Reading())


@pytest.mark.parametrize(
    ("address", "scan"),
    [
        ("s3://bucket/log.parquet", "scan_parquet"),
        ("hf://datasets/a/b/**/*.parquet", "scan_parquet"),
        ("gs://bucket/log.csv", "scan_csv"),
        ("https://host/log.jsonl", "scan_ndjson"),
    ],
)
def test_addresses_are_handed_to_polars(
    address: str, scan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fake(place: str) -> pl.LazyFrame:
        asked.append(place)
        return pl.LazyFrame({"prompt_tokens": [3, 4]})

    monkeypatch.setattr(readers.pl, scan, fake)
    assert readers.is_address(address)
    assert profile_of(open_address(address, Reading())).requests == 2
    assert asked == [address]


def test_an_address_of_another_kind() -> None:
    with pytest.raises(UserMistake, match="must end with one of"):
        open_address("s3://bucket/log.txt", Reading())


def test_a_text_workload_is_lazy_for_polars_too(data: Path) -> None:
    frame = open_file(data / "vllm_custom.jsonl", "v", ESTIMATE).frame()
    found = frame.filter(pl.col("output_tokens") > 20).select("prompt_chars", "dataset").collect()
    assert found.rows() == [(56, "v"), (44, "v")]
    assert frame.head(1).collect()["output_tokens"].to_list() == [10]


@pytest.mark.parametrize("name", ["x[1]", "x*", "x?"])
@pytest.mark.parametrize("form", ["parquet", "csv", "ndjson"])
def test_a_name_is_never_a_pattern(tmp_path: Path, name: str, form: str) -> None:
    for file in (name, "x1", "xx"):
        getattr(pl.DataFrame({"prompt_tokens": [1, 2]}), f"write_{form}")(tmp_path / file)
    assert len(read(tmp_path / name, Reading())) == 2


def test_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("b/x.csv", "a.jsonl", ".git/y.json", "notes.txt", "z.jsonl.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [file.relative_to(tmp_path).as_posix() for file in files_in(tmp_path)]
    assert found == ["a.jsonl", "z.jsonl.gz", "b/x.csv"]
