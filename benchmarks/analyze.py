"""What `chunkwise analyze` costs beside the bare libraries under it.

Three questions, each answered in fresh processes, the two sides in turns so
that a busy machine slows both: is a 20-million-row trace analysed in bounded
memory and about as fast as polars alone finds the same quantiles; does prefix
reuse of 2 million requests fit in 2 GiB; is text tokenized about as fast as
`tokenizers` alone does it on as many threads.

Usage: python benchmarks/analyze.py [--rounds 5] [--rows 20000000] > benchmarks/results/analyze.txt
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl

GIB = 2**30
QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)
THREADS = 2  # as many as a text worker has
PROMPT_CHARACTERS = 3_000
TEXT_CHARACTERS = 16_000_000


def make_trace(path: Path, rows: int, longest: int, spread: float) -> None:
    """Lengths and arrivals: lognormal, and gamma gaps with a variation of 1.4."""
    rng = np.random.default_rng(0)
    pl.DataFrame(
        {
            "arrival_s": np.cumsum(rng.gamma(0.5, 2, rows) / 50),
            "prompt_tokens": np.clip(rng.lognormal(7, spread, rows), 1, longest).astype(np.int64),
            "output_tokens": np.clip(rng.lognormal(5, 1, rows), 1, 16_384).astype(np.int64),
        }
    ).write_parquet(path)


def make_prefixes(path: Path, rows: int, blocks: int = 20) -> None:
    """Each request begins with some blocks of one of many documents and ends with new ones."""
    rng = np.random.default_rng(0)
    document = (rng.random(rows) ** 3 * 200_000).astype(np.int64)
    depth = rng.integers(0, blocks + 1, rows)
    place = np.arange(blocks)
    fresh = np.arange(rows * blocks).reshape(rows, blocks) + 200_000 * blocks
    ids = np.where(place < depth[:, None], document[:, None] * blocks + place, fresh)
    frame = pl.DataFrame({"prefix_blocks": pl.Series(ids).arr.to_list()})
    frame.with_columns(prompt_tokens=pl.lit(blocks * 16)).write_parquet(path)


def make_text(path: Path) -> None:
    """Prompts cut from the source and documentation of Python's own library."""
    home = Path(sysconfig.get_paths()["stdlib"])
    text = ""
    for file in sorted(home.rglob("*.py")):
        if "site-packages" not in file.parts:
            text += file.read_text(encoding="utf-8", errors="ignore")
        if len(text) > TEXT_CHARACTERS:
            break
    with path.open("w") as out:
        for start in range(0, min(len(text), TEXT_CHARACTERS), PROMPT_CHARACTERS):
            out.write(json.dumps({"prompt": text[start : start + PROMPT_CHARACTERS]}) + "\n")


class Clock:
    """Wall and processor seconds of a stretch, with those of helper processes."""

    def __init__(self, helpers: tuple[int, ...] = ()) -> None:
        self._helpers = helpers
        self._start = time.perf_counter(), self._processor()

    def stop(self) -> tuple[float, float]:
        return time.perf_counter() - self._start[0], self._processor() - self._start[1]

    def _processor(self) -> float:
        ticks = 0
        for helper in self._helpers:
            fields = Path(f"/proc/{helper}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


# Each of these runs in a process of its own and returns its seconds and what it found.


def bare_scan(path: Path) -> tuple[tuple[float, float], str]:
    columns = ("prompt_tokens", "output_tokens")
    wanted = [pl.col(c).quantile(q).alias(f"{c} {q}") for c in columns for q in QUANTILES]
    clock = Clock()
    found = pl.scan_parquet(path).select(wanted).collect(engine="streaming")
    return clock.stop(), str([int(value) for value in found.row(0)])


def analysed(path: Path) -> tuple[tuple[float, float], str]:
    from chunkwise.workload.analysis import analyze

    clock = Clock()
    [found] = analyze([str(path)]).profile.datasets
    seconds = clock.stop()
    said = str([side.quantile(q) for side in (found.prompt, found.output) for q in QUANTILES])
    if not found.prompt.exact:
        said += f", prompt rank ±{found.prompt.rank_error:.2%}"
    if found.prefix is not None:
        sampled, curve = found.prefix.sampled, found.prefix.curve_sampled
        said = f"{found.prefix.seen_share:.2%} of tokens seen before ({sampled:.0%} of blocks "
        said += f"followed, {curve:.1%} in the curve)"
    return seconds, said


def bare_tokens(path: Path) -> tuple[tuple[float, float], str]:
    os.environ["RAYON_NUM_THREADS"] = str(THREADS)
    from tokenizers import Tokenizer

    from chunkwise.lab.models import smollm2

    texts = [json.loads(line)["prompt"] for line in path.open()]
    tokenizer = Tokenizer.from_file(str(smollm2() / "tokenizer.json"))
    clock = Clock()
    encodings = tokenizer.encode_batch(texts)
    return clock.stop(), f"{sum(map(len, encodings)):,} tokens"


def pooled_tokens(path: Path) -> tuple[tuple[float, float], str]:
    from chunkwise.lab.models import smollm2
    from chunkwise.workload.profile import profile_of
    from chunkwise.workload.readers import open_file
    from chunkwise.workload.text_workload import Reading
    from chunkwise.workload.tokens import TokenPool, find_tokenizer

    with TokenPool(find_tokenizer(str(smollm2())), 16, workers=1) as pool:
        workload = open_file(path, path.name, Reading(meter=lambda: pool))
        clock = Clock(tuple(child.pid for child in pool._children))
        found = profile_of(workload)
        return clock.stop(), f"{found.prompt.total:,} tokens"


JOBS = {job.__name__: job for job in (bare_scan, analysed, bare_tokens, pooled_tokens)}


def in_a_child(job: str, path: Path) -> tuple[float, float, float, str]:
    """Wall and processor seconds, peak memory in GiB, and what was found."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__)), "--job", job, str(path)],
        capture_output=True,
        check=True,
    )
    return tuple(json.loads(done.stdout))  # type: ignore[return-value]


def in_turns(
    title: str, bare: str, ours: str, path: Path, rounds: int
) -> tuple[float, float, float]:
    """Print both sides; return the medians of ours over bare, wall and processor, and our peak."""
    print(f"\n{title}")
    ratios: list[tuple[float, float]] = []
    peak, last = 0.0, {}
    for turn in range(rounds + 1):
        order = (bare, ours) if turn % 2 else (ours, bare)
        last = {job: in_a_child(job, path) for job in order}
        if turn:  # the first one warms the file cache
            ratios.append((last[ours][0] / last[bare][0], last[ours][1] / last[bare][1]))
            peak = max(peak, last[ours][2])
            pairs = "; ".join(
                f"{job} {wall:.2f} s ({processor:.2f} s of processor), {gib:.2f} GiB"
                for job, (wall, processor, gib, _) in last.items()
            )
            print(f"  round {turn}: {pairs}; ratio {ratios[-1][0]:.2f}", flush=True)
    for job in (bare, ours):
        print(f"  {job} found {last[job][3]}")
    wall, processor = (statistics.median(side) for side in zip(*ratios, strict=True))
    return wall, processor, peak


def peak_memory() -> float:
    # Not getrusage: its maximum starts with the parent's.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / GIB


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--job", nargs=2)
    options = parser.parse_args()
    if options.job:
        seconds, found = JOBS[options.job[0]](Path(options.job[1]))
        print(json.dumps([*seconds, peak_memory(), found]))
        return
    names = ("polars", "tokenizers", "numpy", "datasketches")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, ",
        end="",
    )
    print(", ".join(f"{name} {version(name)}" for name in names))
    with tempfile.TemporaryDirectory() as home:
        for title, longest, spread in (
            ("lengths up to 131,072 (exact)", 131_072, 1.2),
            ("lengths up to 2,000,000 (sketch)", 2_000_000, 2.0),
        ):
            path = Path(home, "trace.parquet")
            make_trace(path, options.rows, longest, spread)
            wall, processor, peak = in_turns(
                f"{options.rows:,} rows, {title}", "bare_scan", "analysed", path, options.rounds
            )
            print(
                f"  => time of analyze over bare polars: {wall:.2f} (wanted: at most 1.5); ", end=""
            )
            print(f"of processor: {processor:.2f}")
            print(f"  => peak memory: {peak:.2f} GiB (wanted: under 1.5)")
            path.unlink()
        path = Path(home, "prefixes.parquet")
        make_prefixes(path, options.rows // 10)
        print(f"\nPrefix reuse, {options.rows // 10:,} requests with 20 block ids each")
        seconds, _, peak, found = in_a_child("analysed", path)
        print(f"  {seconds:.1f} s; {found}")
        print(f"  => peak memory: {peak:.2f} GiB (wanted: under 2)")
        path.unlink()
        path = Path(home, "text.jsonl")
        make_text(path)
        wall, processor, _ = in_turns(
            f"Tokenizing {path.stat().st_size / 1e6:.0f} MB on {THREADS} threads "
            f"(ours also reads the file, makes block ids and profiles)",
            "bare_tokens",
            "pooled_tokens",
            path,
            options.rounds,
        )
        print(f"  => throughput of ours over bare encode_batch: {1 / wall:.0%} ", end="")
        print(f"(wanted: at least 85%); per processor second: {1 / processor:.0%}")


if __name__ == "__main__":
    main()
