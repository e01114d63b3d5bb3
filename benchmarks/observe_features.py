"""The plug-in in live servers of other kinds: tensor and data parallel, and with faults.

Each server gets the same requests over HTTP; said is whether all were answered,
what the capture holds, and what the plug-in logged. Too long for every change.

Usage: python benchmarks/observe_features.py [NAME…]
"""

import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chunkwise.errors import UserMistake
from chunkwise.observed import Request, Step
from chunkwise.readers.capture import captures

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.engine.live import complete, metrics, server  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
NGRAM = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}'
SPECULATIVE = (
    *("--speculative-config", NGRAM),
    *("--kv-cache-memory-bytes", str(24 * 2**20)),
    *("--scheduling-policy", "priority"),
)
SERVERS: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "plain": ((), {}, ""),
    "tensor parallel, 2": (("--tensor-parallel-size", "2"), {}, ""),
    "data parallel, 2": (("--data-parallel-size", "2"), {}, ""),
    "speculative, small pool, priorities": (SPECULATIVE, {}, ""),
    "Prometheus' multiprocess files": ((), {"PROMETHEUS_MULTIPROC_DIR": ""}, ""),
    "a folder that cannot be written": ((), {}, "/proc/chunkwise"),
    "off": ((), {"CHUNKWISE": "off"}, ""),
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
COUNT = 24


def asked(url: str, number: int, priorities: bool) -> dict:
    prompt = [100 + number % 3] * 64 + [1000 + number] * (30 + 60 * (number % 12))
    more = {"priority": number % 2} if priorities else {}
    if number == 5:
        more = {"structured_outputs": {"json": SCHEMA}, "ignore_eos": False}
    return complete(url, prompt, 16, **more)


def row(name: str) -> list[str]:
    more, environment, folder = SERVERS[name]
    home = Path(tempfile.mkdtemp(prefix="chunkwise-features-"))
    environment = {key: value or str(home / "prometheus") for key, value in environment.items()}
    (home / "prometheus").mkdir()
    with server(folder or home / "seen", *more, **environment) as (url, log):
        with ThreadPoolExecutor(8) as pool:
            answers = list(
                pool.map(lambda number: asked(url, number, "priority" in more), range(COUNT))
            )
        time.sleep(2.5)
        shown = metrics(url)
    usages = [answer["usage"] for answer in answers]
    sent = sorted((usage["prompt_tokens"], usage["completion_tokens"]) for usage in usages)
    try:
        found = captures(home / "seen")
    except UserMistake:
        found = []
    records = [record for capture in found for record in capture.records()]
    steps = sum(isinstance(record, Step) for record in records)
    seen = sorted((r.prompt, r.output) for r in records if isinstance(r, Request))
    counted = re.findall(r"^chunkwise_step_seconds_count{[^}]*} (\S+)$", shown, re.MULTILINE)
    lines = re.findall(r"\] (Chunkwise.*)", log.read_text())
    said = sorted({re.sub(r"; records go to .*", "", line) for line in lines})
    return [
        name,
        f"{len(answers)} of {COUNT}",
        f"{len(found)} engines, {steps:,} steps, {len(seen)} requests" if found else "none",
        "equal" if seen == sent else "-" if not found else "DIFFERENT",
        "yes" if counted and sum(map(float, counted)) == steps else "no",
        " ".join(said),
    ]


def main() -> None:
    names = sys.argv[1:] or list(SERVERS)
    lines = [
        "| server | answered | capture | lengths | steps in `/metrics` | log |",
        "|---|---|---|---|---|---|",
    ]
    for name in names:
        lines.append(f"| {' | '.join(row(name))} |")
        print(lines[-1], flush=True)
    RESULTS.joinpath("observe-features.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
