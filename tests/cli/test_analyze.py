import json
import subprocess
import sys
from pathlib import Path

import pytest

from chunkwise import cli

DATA = Path(__file__).parents[1] / "data"
MOONCAKE = str(DATA / "mooncake_120.jsonl")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def call(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["chunkwise", "analyze", *args])
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def test_a_trace(run) -> None:
    code, out, _ = run(MOONCAKE)
    assert code == 0
    for part in (
        "120 requests",
        "Tokens per request",
        "Prefix reuse by cache size",
        "Arrivals:",
        "First verdict: cut",
        "vllm serve MODEL --max-num-batched-tokens",
        "does not know the latency you promised",
    ):
        assert part in out
    assert "estimate" not in out


def test_json_is_one_object_with_the_same_figures(run) -> None:
    code, out, _ = run(MOONCAKE, str(DATA / "burstgpt.csv"), "--json")
    found = json.loads(out)
    assert code == 0
    assert found["schema"] == "chunkwise.analyze/1"
    assert (found["datasets"], found["requests"]) == (2, 126)
    assert [item["name"] for item in found["per_dataset"]] == ["mooncake_120.jsonl", "burstgpt.csv"]
    whole = found["overall"]
    assert whole["prompt"]["exact"]
    assert sum(item["requests"] for item in whole["prompt"]["histogram"]) == 126
    assert whole["datasets_above"]["2048"] == 0.5
    assert whole["prefix"]["seen_share"] > 0
    assert whole["verdict"]["settings"]
    assert found["per_dataset"][1]["classes"]["API log"] == 2


def test_an_estimate_is_labelled_wherever_it_appears(run) -> None:
    _, out, _ = run(str(DATA / "vllm_custom.jsonl"), "--estimate")
    out = " ".join(out.split())
    assert "Lengths are estimates (characters ÷ 4)" in out
    assert "prompt (estimated)" in out
    assert "Prompt lengths (estimated)" in out
    assert "Long prompts (estimated)" in out
    assert "an estimated" in out
    assert "estimated from characters" in out
    _, out, _ = run(str(DATA / "vllm_custom.jsonl"), "--estimate", "--json")
    assert json.loads(out)["estimated"] is True


def test_save_then_merge(run, tmp_path: Path) -> None:
    saved = [str(tmp_path / name) for name in ("a.json", "b.json")]
    run(MOONCAKE, "--save", saved[0])
    run(MOONCAKE, str(DATA / "azure_conv_200.csv"), "--save", saved[1])
    _, merged, _ = run(*saved, "--json")
    _, direct, _ = run(MOONCAKE, MOONCAKE, str(DATA / "azure_conv_200.csv"), "--json")
    assert json.loads(merged) == json.loads(direct)
    assert json.loads(merged)["overall"]["prefix"]["lower_bound"] is True


def test_a_folder_says_what_it_left_out(run, tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text('{"prompt": "hello"}\n')
    (tmp_path / "bad.json").write_text('{"other": 1}')
    code, out, _ = run(str(tmp_path), "--estimate")
    assert code == 0
    assert "1 of 2 files were left out" in out
    assert "`other`" in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["absent.csv"], "There is no file or folder"),
        ([MOONCAKE, "--estimate", "--model", "x"], "not both"),
        ([str(DATA / "sharegpt.json")], "--model, or count"),
        ([str(DATA / "sharegpt.json"), "--model", "no/model"], "No tokenizer.json"),
        ([MOONCAKE, "--column", " , "], "at least one name"),
        ([MOONCAKE, "--save", "/no/where/p.json"], "Cannot write /no/where/p.json"),
        ([MOONCAKE, "--html", "/no/where/p.html"], "Cannot write /no/where/p.html"),
    ],
)
def test_mistakes_are_a_sentence(run, args: list[str], said: str) -> None:
    code, out, err = run(*args)
    assert code == 2
    assert said in err
    assert not out


def python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=False, timeout=60
    )


def test_without_the_extra_it_says_what_to_install() -> None:
    hide = (
        "import importlib.util as u, sys; real = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n in ('polars', 'datasketches') else real(n, *a)\n"
        "from chunkwise.cli import main; main()"
    )
    done = python(hide, "analyze", MOONCAKE)
    assert done.returncode == 3
    assert "needs datasketches, polars: run `pip install 'chunkwise[plan]'`" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    check = (
        "import sys, chunkwise, chunkwise.cli, chunkwise.verdict\n"
        "heavy = {'polars', 'numpy', 'plotly', 'tokenizers', 'vllm'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert python(check).stdout.strip() == "[]"
    room = (
        "import sys, chunkwise.workload.analysis, chunkwise.workload.synthesis\n"
        "print([n for n in sys.modules if n.split('.')[0] in ('vllm', 'torch', 'plotly')"
        " or n.startswith(('chunkwise.engine', 'chunkwise.lab', 'chunkwise.report'))])"
    )
    assert python(room).stdout.strip() == "[]"
