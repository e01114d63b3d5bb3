"""A live server under observation: is the capture what the client sent, and what does it cost?

`exact`: a CPU server with the plug-in gets 500 requests of a mixed workload from
vLLM's own benchmark client; the capture is compared with what the client says it
sent and with the server's own counters; then the capture itself is replayed.
`cost`: two servers, one stock, one observed, take the same requests in turn; the
ratio of the times is given with its interval.

Usage: python benchmarks/observe_live.py exact|cost
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

import numpy as np

from chunkwise.lab.load import Client
from chunkwise.lab.models import timing_model
from chunkwise.lab.source import open_source
from chunkwise.observed import Request, Step
from chunkwise.readers.capture import Capture, captures, runs

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.engine.live import server  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
REQUESTS, BLOCK = 500, 32
CLIENT = """
import sys
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.benchmarks.serve import add_cli_args, main
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args(sys.argv[1:]))
"""


def mixed(path: Path, count: int, rate: float, seed: int) -> None:
    """Chats on shared system prompts, and documents now and then, as a timed trace."""
    rng = np.random.default_rng(seed)
    at, fresh = 0.0, 1_000
    with path.open("w") as file:
        for _ in range(count):
            at += rng.exponential(1 / rate)
            document = rng.random() < 0.12
            length = int(rng.integers(1_000, 3_000) if document else rng.integers(140, 360))
            first = 4 * int(rng.integers(0, 8))
            blocks = [] if document else list(range(first, first + 4))
            need = -(-length // BLOCK) - len(blocks)
            blocks += range(fresh, fresh + need)
            fresh += need
            output = int(rng.integers(4, 12) if document else rng.integers(8, 32))
            row = {"timestamp": at, "input_length": length, "output_length": output}
            file.write(json.dumps({**row, "hash_ids": blocks}) + "\n")


def play(url: str, trace: Path, count: int, *more: str, block: int = BLOCK) -> dict:
    """Let vLLM's client send a trace; return what it says it did."""
    with tempfile.TemporaryDirectory() as home:
        arguments = ["--backend", "openai", "--base-url", url, "--endpoint", "/v1/completions"]
        arguments += ["--model", "m", "--tokenizer", str(timing_model("30m")), "--ignore-eos"]
        arguments += ["--dataset-name", "timed_trace", "--dataset-path", str(trace)]
        arguments += ["--num-prompts", str(count), "--save-result", "--save-detailed"]
        arguments += ["--result-dir", home, "--result-filename", "r.json", "--disable-tqdm"]
        arguments += ["--timed-trace-label-timestamp", "timestamp"]
        arguments += ["--timed-trace-label-input-length", "input_length"]
        arguments += ["--timed-trace-label-output-length", "output_length"]
        arguments += ["--timed-trace-label-hash-ids", "hash_ids"]
        arguments += ["--timed-trace-chunk-hash-size", str(block), "--temperature", "0", *more]
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
            check=False,
        )
        if done.returncode:
            sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
        return json.loads(Path(home, "r.json").read_text())


def metric(url: str, name: str) -> float:
    """The sum of a counter over its labels."""
    with urlopen(f"{url}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, found))


def parts(capture: Capture) -> tuple[list[Step], list[Request]]:
    records = list(capture.records())
    steps = [record for record in records if isinstance(record, Step)]
    requests = [record for record in records if isinstance(record, Request)]
    return steps, sorted(requests, key=lambda request: request.arrival)


def off(sent: list[float], seen: list[float]) -> np.ndarray:
    """Milliseconds between two lists of arrivals, their clocks' difference taken out."""
    difference = (np.array(seen) - seen[0]) - (np.array(sent) - sent[0])
    return 1e3 * (difference - np.median(difference))


def exact() -> dict:
    home = Path(tempfile.mkdtemp(prefix="chunkwise-live-"))
    trace = home / "trace.jsonl"
    mixed(trace, REQUESTS, rate=4.0, seed=1)
    with server(home / "seen") as (url, _):
        said = play(url, trace, REQUESTS)
        hits, asked = (
            metric(url, "vllm:prefix_cache_hits_total"),
            metric(url, "vllm:prompt_tokens_total"),
        )
        made = metric(url, "vllm:generation_tokens_total")
        time.sleep(2)
        ours = metric(url, "chunkwise_step_seconds_count")
    (run,) = runs(captures(home / "seen"))
    steps, requests = parts(run[0])
    assert not any(said["errors"]), said["errors"]
    order = np.argsort(said["start_times"], kind="stable")
    sent = [said["start_times"][i] for i in order]
    drift = np.abs(off(sent, [request.arrival for request in requests]))
    # Two requests a millisecond apart may reach the server in the other order.
    lengths = sorted(zip(said["input_lens"], said["output_lens"], strict=True))
    found = {
        "requests": len(requests),
        "lengths_equal": lengths == sorted((r.prompt, r.output) for r in requests),
        "arrivals_ms": {
            q: float(np.quantile(drift, float(q))) for q in ("0.5", "0.95", "0.99", "1")
        },
        "arrivals_within_5ms": float((drift <= 5).mean()),
        "cached_tokens": [sum(request.cached for request in requests), int(hits)],
        "prompt_tokens": [sum(request.prompt for request in requests), int(asked)],
        "output_tokens": [sum(request.output for request in requests), int(made)],
        "steps": [len(steps), int(ours)],
        "steps_numbered_once": [s.number for s in steps] == list(range(len(steps))),
        "tokens_of_steps": [
            sum(step.prefill_tokens for step in steps),
            sum(request.prompt - request.cached for request in requests),
        ],
    }
    # The capture as a source of the lab's, sent again by the lab's client.
    source = open_source(str(home / "seen"), str(timing_model("30m")))
    asked_again = source.round(REQUESTS, 0, rate=None, users=None)
    with (
        server(home / "replayed") as (url, _),
        Client(str(timing_model("30m")), 8192) as client,
    ):
        client.start(lambda text, done: None)
        client.play(url, "m", asked_again, salt="again", block_size=source.block_size)
        time.sleep(2)
    (run,) = runs(captures(home / "replayed"))
    _, replayed = parts(run[0])
    sent = [one.at for one in asked_again]
    drift = np.abs(off(sent, [request.arrival for request in replayed]))
    found["replay"] = {
        "requests": len(replayed),
        "arrivals_ms": {
            q: float(np.quantile(drift, float(q))) for q in ("0.5", "0.95", "0.99", "1")
        },
        "lengths_equal": sorted((one.prompt_tokens, one.output_tokens) for one in asked_again)
        == sorted((r.prompt, r.output) for r in replayed),
        "cached_tokens": [sum(one.cached for one in requests), sum(r.cached for r in replayed)],
    }
    shown = subprocess.run(
        [sys.executable, "-m", "chunkwise", "observe", "seen"],
        cwd=home,
        env={**os.environ, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=True,
    )
    RESULTS.joinpath("observe-command.txt").write_text(shown.stdout)
    return found


def cost(rounds: int = 8, count: int = 60) -> dict:
    home = Path(tempfile.mkdtemp(prefix="chunkwise-live-"))
    ratios, same = [], []
    with (
        server(None, "--dtype", "float32") as (stock, _),
        server(home / "seen", "--dtype", "float32") as (watched, _),
    ):
        for number in range(rounds + 1):
            trace = home / f"{number}.jsonl"
            mixed(trace, count, rate=1e6, seed=number)
            order = ((stock, 0), (watched, 1)) if number % 2 else ((watched, 1), (stock, 0))
            seconds, texts = [0.0, 0.0], [[], []]
            for url, who in order:
                said = play(url, trace, count, "--max-concurrency", "8")
                seconds[who], texts[who] = said["duration"], said["generated_texts"]
            if number:  # the first round warms both
                ratios.append(seconds[1] / seconds[0])
                same.append(np.mean([a == b for a, b in zip(*texts, strict=True)]))
    rng = np.random.default_rng(0)
    logs = np.log(ratios)
    means = np.exp(np.mean(logs[rng.integers(0, rounds, (5000, rounds))], axis=1))
    low, high = np.quantile(means, (0.025, 0.975))
    return {
        "rounds": rounds,
        "requests_a_round": count,
        "time_ratio": float(np.exp(logs.mean())),
        "interval": [float(low), float(high)],
        "ratios": ratios,
        "same_text": float(np.mean(same)),
    }


def main() -> None:
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in ("exact", "cost"):
        sys.exit(__doc__)
    found = {"exact": exact, "cost": cost}[name]()
    print(json.dumps(found, indent=2))
    RESULTS.joinpath(f"observe-live-{name}.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
