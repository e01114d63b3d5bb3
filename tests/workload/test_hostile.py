"""Files that are broken or mean: a sentence, in bounded memory and time."""

import gzip
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from chunkwise.workload.sniff import LONGEST_LINE

LINE = '{"timestamp": 0, "input_length": %s, "output_length": 1, "hash_ids": [1]}\n'
CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,%s,10\n"


def make(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def endless_line(path: Path, start: bytes) -> Path:
    """A gigabyte without a line's end; sparse after the part that is looked at."""
    with path.open("wb") as file:
        file.write(start)
        file.write(b"a" * (2 * LONGEST_LINE))
        file.truncate(2**30)
    return path


def nan_parquet(path: Path) -> Path:
    pl.DataFrame({"prompt_tokens": [1.0, float("nan")]}).write_parquet(path)
    return path


def looping_model(home: Path, model: Path) -> Path:
    home.mkdir()
    (home / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    (home / "tokenizer_config.json").write_text(json.dumps({"chat_template": loop}))
    return home


FILES = {
    "binary": lambda p: make(p / "x.csv", bytes(range(256)) * 64),
    "binary, no zero bytes": lambda p: make(p / "x.jsonl", b"\xff\xfe\xfd" * 999),
    "1 GB line, JSON": lambda p: endless_line(p / "x.jsonl", b'{"prompt": "'),
    "1 GB line, CSV": lambda p: endless_line(p / "x.csv", b"prompt,id\n"),
    "1 GB line, after good ones": lambda p: endless_line(
        p / "x.jsonl", (LINE % 5).encode() * 300_000
    ),
    "1 GB object in an array": lambda p: endless_line(p / "x.json", b'[{"prompt": "'),
    "NaN in CSV": lambda p: make(p / "x.csv", CSV % "NaN"),
    "NaN in JSON": lambda p: make(p / "x.jsonl", LINE % "NaN"),
    "NaN in Parquet": lambda p: nan_parquet(p / "x.parquet"),
    "infinite": lambda p: make(p / "x.csv", CSV % "inf"),
    "negative": lambda p: make(p / "x.csv", CSV % "-3"),
    "negative in JSON": lambda p: make(p / "x.jsonl", LINE % "-3"),
    "not whole": lambda p: make(p / "x.csv", CSV % "1.5"),
    "huge": lambda p: make(p / "x.csv", CSV % "99999999999"),
    "missing": lambda p: make(p / "x.csv", CSV % ""),
    "missing in JSON": lambda p: make(p / "x.jsonl", LINE % 5 + '{"timestamp": 1}\n'),
    "a hole in the blocks": lambda p: make(p / "x.jsonl", (LINE % 5).replace("[1]", "[1, null]")),
    "out of order": lambda p: make(p / "x.csv", CSV % "5" + "2023-11-16 18:17:01.0000000,5,5\n"),
    "mixed types": lambda p: make(p / "x.jsonl", LINE % 5 + LINE % '"many"'),
    "mixed types in CSV": lambda p: make(p / "x.csv", CSV % "5" + "2023-11-16 18:17:04,abc,1\n"),
    "a time that is none": lambda p: make(p / "x.csv", CSV % "5" + "yesterday,1,1\n"),
    "rows that are no objects": lambda p: make(p / "x.json", "[1, 2]"),
    "ends in the middle": lambda p: make(p / "x.json", '[{"prompt": "a"}, {"prompt'),
    "deep": lambda p: make(p / "x.json", '[{"prompt": ' + "[" * 100_000),
    "long number": lambda p: make(p / "x.json", '[{"prompt": ' + "9" * 10_000 + "}]"),
    "gzip": lambda p: make(p / "x.jsonl.gz", gzip.compress(b'{"prompt": "a"}\n')),
    "cut Parquet": lambda p: make(p / "x.parquet", b"PAR1" + b"\x00" * 100),
    "empty": lambda p: make(p / "x.csv", ""),
    "only a header": lambda p: make(p / "x.csv", CSV.splitlines()[0] + "\n"),
    "bad message": lambda p: make(p / "x.jsonl", '{"messages": [{"content": "no role"}]}\n'),
    "a row without a prompt": lambda p: make(p / "x.jsonl", '{"prompt": "a"}\n{"prompt": null}\n'),
    "no messages": lambda p: make(p / "x.jsonl", '{"messages": []}\n'),
    "negative limit": lambda p: make(p / "x.jsonl", '{"prompt": "a", "max_tokens": -1}\n'),
    "a directory that is empty": lambda p: p,
    "nothing there": lambda p: p / "absent",
}
SAID = {
    "binary": "is binary",
    "1 GB line, JSON": "has a line of over 16 MiB",
    "1 GB line, CSV": "has a line of over 16 MiB",
    "1 GB line, after good ones": "has a line of over 16 MiB",
    "1 GB object in an array": "is over 16 MiB",
    "NaN in CSV": "prompt_tokens of request 1 is not a number",
    "NaN in Parquet": "prompt_tokens of request 2 is not a number",
    "negative": "prompt_tokens of request 1 is negative",
    "negative in JSON": "prompt_tokens of request 1 is negative",
    "missing in JSON": "prompt_tokens of request 2 is missing",
    "out of order": "Request 2 arrives",
    "gzip": "gunzip -k",
    "a row without a prompt": "request 2 has nothing in `prompt`",
}


@pytest.mark.parametrize("name", FILES)
def test_a_sentence_in_bounded_memory_and_time(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from chunkwise import cli

    path = FILES[name](tmp_path)
    monkeypatch.setattr(sys, "argv", ["chunkwise", "analyze", str(path), "--estimate"])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()  # of the processor: the machine may be busy
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2, said
    assert time.process_time() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024
    assert said[-1].startswith("chunkwise: ")
    assert len(said[-1]) < 700
    assert SAID.get(name, "") in said[-1]


@pytest.mark.slow
def test_a_template_that_loops_ends(tmp_path: Path, model: Path, data: Path) -> None:
    mean = looping_model(tmp_path / "mean", model)
    command = [sys.executable, "-m", "chunkwise", "analyze", str(data / "openai_batch.jsonl")]
    start = time.monotonic()
    done = subprocess.run(
        [*command, "--model", str(mean)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "the chat template failed: it ran for over 2 s" in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - start < 40


def test_the_terminal_gets_no_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from chunkwise import cli

    home = tmp_path / "d"
    home.mkdir()
    for index in range(2):
        file = home / f"\x1b[31m[red]{index}.jsonl"
        file.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    monkeypatch.setattr(sys, "argv", ["chunkwise", "analyze", os.fspath(home), "--estimate"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    out = capsys.readouterr().out
    assert "\x1b[31m" not in out
    assert "[red]0" in out
