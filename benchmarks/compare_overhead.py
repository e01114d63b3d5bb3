"""Does driving vLLM's benchmark client as a library change what it measures?

One server; in turn our driving (`chunkwise.lab.load`) and the bare client, run by
hand as `vllm bench serve` is; the same arrivals and lengths in every pair. Printed:
the ratio of ours to the bare one with its 95% interval; it should include 1.

Usage: python benchmarks/compare_overhead.py > benchmarks/results/compare-overhead.txt
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from chunkwise.lab.load import Client, Request
from chunkwise.lab.models import timing_model
from chunkwise.lab.server import Server
from chunkwise.lab.statistics import interval

PAIRS = 16
REQUESTS = 24
RATE = 5.0
ARGS = "--load-format dummy --enforce-eager --max-model-len 2048 --no-enable-prefix-caching"
MEMORY = ["--kv-cache-memory-bytes", str(2**29)]
BARE = """
import argparse, sys
from vllm.benchmarks.serve import add_cli_args, main
parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args(sys.argv[1:]))
"""


def requests(seed: int) -> list[Request]:
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.exponential(1 / RATE, REQUESTS))
    return [
        Request(float(when - at[0]), int(rng.integers(64, 512)), int(rng.integers(16, 48)))
        for when in at
    ]


def ours(client: Client, server: Server, asked: list[Request]) -> dict[str, float]:
    found = client.play(server.url, server.model, asked, salt="none")
    assert found is not None
    assert not found.failed
    run = found.measured
    return figures(run.ttft, run.gaps, run.end_to_end) | {
        "lag": float(np.quantile(found.lag, 0.99))
    }


def bare(server: Server, model: str, asked: list[Request], folder: Path) -> dict[str, float]:
    trace, out = folder / "trace.jsonl", folder / "out.json"
    rows = [
        {
            "timestamp": request.at,
            "input_length": request.prompt_tokens,
            "output_length": request.output_tokens,
            "hash_ids": list(range(100 * number, 100 * number + request.prompt_tokens // 16 + 1)),
        }
        for number, request in enumerate(asked)
    ]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {
        "--backend": "openai",
        "--base-url": server.url,
        "--endpoint": "/v1/completions",
        "--model": model,
        "--served-model-name": server.model,
        "--dataset-name": "timed_trace",
        "--dataset-path": str(trace),
        "--timed-trace-chunk-hash-size": "16",
        "--timed-trace-sec-multiplier": "1",
        "--num-prompts": str(len(asked)),
        "--temperature": "0",
        "--result-dir": str(folder),
        "--result-filename": out.name,
    }
    words = [word for pair in options.items() for word in pair]
    command = [sys.executable, "-c", BARE, *words, "--save-result", "--save-detailed"]
    done = subprocess.run([*command, "--disable-tqdm"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-4000:])
    found = json.loads(out.read_text())
    assert not any(found["errors"])
    assert sorted(found["input_lens"]) == sorted(request.prompt_tokens for request in asked)
    ttft = np.array(found["ttfts"])
    gaps = np.concatenate([np.array(one) for one in found["itls"]])
    whole = ttft + np.array([sum(one) for one in found["itls"]])
    return figures(ttft, gaps, whole)


def figures(ttft: np.ndarray, gaps: np.ndarray, whole: np.ndarray) -> dict[str, float]:
    return {
        "median time to first token": float(np.median(ttft)),
        "mean time to first token": float(ttft.mean()),
        "median gap": float(np.median(gaps)),
        "P99 gap": float(np.quantile(gaps, 0.99)),
        "mean end to end": float(whole.mean()),
    }


def main() -> None:
    model = str(timing_model("30m"))
    server = Server("overhead", model, [*ARGS.split(), *MEMORY])
    pairs: list[tuple[dict[str, float], dict[str, float]]] = []
    try:
        server.wait_healthy()
        with Client(model, 2048) as client, tempfile.TemporaryDirectory() as folder:
            client.start(lambda text, done: None)
            warm = [replace(request, at=0.0) for request in requests(999)]
            client.play(server.url, server.model, warm, salt="none", users=16)
            for number in range(PAIRS):
                asked = requests(number)
                if number % 2:  # who goes first, in turn
                    by_hand = bare(server, model, asked, Path(folder))
                    pairs.append((ours(client, server, asked), by_hand))
                else:
                    mine = ours(client, server, asked)
                    pairs.append((mine, bare(server, model, asked, Path(folder))))
                print(f"pair {number + 1} of {PAIRS}", file=sys.stderr)
    finally:
        server.stop()
    print(f"Ours ÷ the bare client, {PAIRS} pairs of {REQUESTS} requests at {RATE:g} a second\n")
    print(f"{'':28}{'ratio':>8}   95% interval     includes 1")
    for name in pairs[0][1]:
        logs = np.log([mine[name] / theirs[name] for mine, theirs in pairs])
        low, high = np.exp(interval(logs))
        verdict = "yes" if low <= 1 <= high else "no"
        print(f"{name:28}{np.exp(logs.mean()):8.3f}   {low:.3f} to {high:.3f}   {verdict}")
    lag = max(mine["lag"] for mine, _ in pairs)
    print(f"\nOur client sent at most {1e3 * lag:.1f} ms late (P99 of the worst run).")


if __name__ == "__main__":
    main()
