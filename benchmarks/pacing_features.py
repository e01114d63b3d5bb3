"""Live servers that are paced, of every kind that the plug-in acts on.

Each server gets the requests of `observe_features.py`, with longer answers so that
there is something to pace: shared prefixes, one with a JSON schema, priorities
where the server heeds them. Four clients more send a long prompt and hang up
before its first token. Said is who was answered, what the capture holds, whether
the pacer still acts at the end, and what it logged. Too long for every change.

Usage: python benchmarks/pacing_features.py [NAME…]
"""

import http.client
import json
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import observe_features as base

from chunkwise.observed import Request, Step
from chunkwise.readers.capture import captures

TOKENS = 64
HANG_UPS = 4
PATIENCE = 0.3  # seconds until they hang up
ORDERS = {"CHUNKWISE": "on", "CHUNKWISE_ITL": "30ms", "CHUNKWISE_TTFT": "1s"}
SMALL = ("--max-model-len", "2048", "--kv-cache-memory-bytes", str(10 * 2**20))
SERVERS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "tensor parallel, 2": ("--tensor-parallel-size", "2"),
    "data parallel, 2": ("--data-parallel-size", "2"),
    "n-gram drafts, priorities": (
        *("--speculative-config", base.NGRAM),
        *("--scheduling-policy", "priority"),
    ),
    "tiny pool": SMALL,
    "tiny pool, drafts, priorities": (
        *SMALL,
        *("--speculative-config", base.NGRAM),
        *("--scheduling-policy", "priority"),
    ),
}


def asked(url: str, number: int, priorities: bool) -> dict:
    prompt = [100 + number % 3] * 64 + [1000 + number] * (30 + 60 * (number % 12))
    more = {"priority": number % 2} if priorities else {}
    if number == 5:
        more = {"structured_outputs": {"json": base.SCHEMA}, "ignore_eos": False}
    answer = base.complete(url, prompt, TOKENS, **more)
    assert number == 5 or answer["usage"]["completion_tokens"] == TOKENS
    return answer


def hang_up(url: str, number: int, longest: int) -> None:
    """Send a long prompt, and close the connection before its first token."""
    body = {"model": "m", "prompt": [2000 + number] * (longest - 100), "max_tokens": 8}
    link = http.client.HTTPConnection(urlsplit(url).netloc)
    link.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    time.sleep(PATIENCE)
    link.close()


def row(name: str) -> list[str]:
    more = SERVERS[name]
    longest = 2048 if "--max-model-len" in more else 8192
    home = Path(tempfile.mkdtemp(prefix="chunkwise-paced-"))
    with base.server(home, *more, **ORDERS) as (url, log):
        with ThreadPoolExecutor(12) as pool:
            answers = pool.map(lambda n: asked(url, n, "priority" in more), range(base.COUNT))
            for number in range(HANG_UPS):
                hang_up(url, number, longest)
            usages = [answer["usage"] for answer in answers]
        time.sleep(2.5)
        shown = base.metrics(url)
    sent = sorted((usage["prompt_tokens"], usage["completion_tokens"]) for usage in usages)
    found = captures(home)
    records = [record for capture in found for record in capture.records()]
    requests = [record for record in records if isinstance(record, Request)]
    steps = [record for record in records if isinstance(record, Step)]
    left = [request for request in requests if request.reason == "abort"]
    seen = sorted((one.prompt, one.output) for one in requests if one not in left)
    acting = re.findall(r"^chunkwise_pacing_acting{[^}]*} (\S+)$", shown, re.MULTILINE)
    said = re.findall(r"\] (Chunkwise.*)", log.read_text())
    # What is neither the line that it paces nor the one that it observes is a complaint.
    odd = sorted({line for line in said if not re.search("paces this|observes this", line)})
    middle = sum(one.scheduled is not None and one.first_token is None for one in left)
    return [
        name,
        f"{len(usages)} of {base.COUNT}, {'as asked' if seen == sent else 'DIFFERENT'}",
        f"{len(left)}, {middle} in mid-prefill",
        f"{len(found)}, {sum(bool(float(one)) for one in acting)} acting",
        f"{len(steps):,}, {sum(step.kind == 'mixed' for step in steps)} mixed",
        str(sum(request.chunks > 1 for request in requests)),
        f"{sum(request.cached for request in requests):,}",
        str(sum(request.preemptions for request in requests)),
        " ".join(odd) or "nothing",
    ]


def main() -> None:
    lines = [
        "| server | answered | hung up | engines | steps | prompts cut | tokens from the prefix "
        "cache | preemptions | complaints in the log |",
        "|---|---|---|---|---|---:|---:|---:|---|",
    ]
    for name in sys.argv[1:] or list(SERVERS):
        lines.append(f"| {' | '.join(row(name))} |")
        print(lines[-1], flush=True)
    if not sys.argv[1:]:
        base.RESULTS.joinpath("pacing-features.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
