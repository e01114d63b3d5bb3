"""Compare the memory estimates with what vLLM's CPU engine takes, and keep the table.

Prompt scoring: the peak of the process's resident memory over one scored prompt,
for three budgets and two dtypes. KV pool: what vLLM reports at start, for three
models, from a size in bytes and from a fraction of memory.
Usage: .venv/bin/python benchmarks/memory.py
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from chunkwise.cost import memory
from chunkwise.cost.shape import in_dtype, read_shape
from chunkwise.lab import models
from chunkwise.sizes import GIB, say_bytes

RESULT = Path(__file__).parent / "results" / "memory.txt"
PROMPT = 3000
QUIET = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}


def main() -> None:
    lines = ["$ python benchmarks/memory.py", "", f"Scoring one prompt of {PROMPT:,} tokens"]
    smollm2 = str(models.smollm2())
    for budget, dtype in [
        *((size, "float32") for size in (256, 1024, 2048)),
        (1024, "bfloat16"),
    ]:
        shape = in_dtype(read_shape(smollm2), dtype)
        predicted = memory.step_bytes(shape, budget, PROMPT, "cpu")
        measured = child("peak", smollm2, budget=budget, dtype=dtype)["peak"]
        lines.append(row(f"budget {budget:>5,} {dtype}", predicted, measured, say_bytes))
    lines += ["", "KV pool in tokens, reported by vLLM at start"]
    for path in (smollm2, str(models.timing_model("30m")), str(models.timing_model("130m"))):
        shape = in_dtype(read_shape(path))
        name = Path(path).name.rsplit("-", 1)[0]
        found = child("pool", path, size=GIB)
        predicted = memory.pool_from_bytes(shape, GIB, found["block"]).tokens
        lines.append(row(f"{name}, 1 GiB", predicted, found["tokens"], "{:,}".format))
        found = child("pool", path, fraction=0.3)
        predicted = memory.cpu_pool(shape, found["total"], 0.3, found["block"]).tokens
        lines.append(row(f"{name}, fraction 0.3", predicted, found["tokens"], "{:,}".format))
    RESULT.write_text("\n".join([*lines, ""]))
    print(RESULT.read_text())


def row(name, predicted, measured, say) -> str:
    return (
        f"  {name:<38} predicted {say(predicted):>10}  measured {say(measured):>10}  "
        f"({predicted / measured - 1:+.1%})"
    )


def child(what: str, model: str, **options: object) -> dict:
    """Run one measurement in a process of its own and return its last line."""
    command = [sys.executable, __file__, what, model, json.dumps(options)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def inside(what: str, model: str, options: dict) -> dict:
    import psutil
    from vllm import LLM, SamplingParams

    common = {"enforce_eager": True, "max_num_seqs": 16, "load_format": "auto"}
    if not list(Path(model).glob("*.safetensors")):
        common["load_format"] = "dummy"
    if what == "pool":
        asked = (
            {"kv_cache_memory_bytes": options["size"]}
            if "size" in options
            else {"gpu_memory_utilization": options["fraction"]}
        )
        llm = LLM(model, max_num_batched_tokens=512, max_model_len=4096, **asked, **common)
        cache = llm.llm_engine.vllm_config.cache_config
        return {
            "tokens": cache.num_gpu_blocks * cache.block_size,
            "block": cache.block_size,
            "total": psutil.virtual_memory().total,
        }
    llm = LLM(
        model,
        dtype=options["dtype"],
        max_num_batched_tokens=options["budget"],
        kv_cache_memory_bytes=GIB,
        max_model_len=4096,
        **common,
    )
    params = SamplingParams(temperature=0, prompt_logprobs=1, max_tokens=1, detokenize=False)
    # The first run warms the allocator and the compiled ranks; the second is measured.
    for first in (10, 11):
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = status("VmRSS")
        ids = [first + (7 * n) % 40_000 for n in range(PROMPT)]
        llm.generate([{"prompt_token_ids": ids}], params, use_tqdm=False)
    return {"peak": status("VmHWM") - before}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.environ.update(QUIET)  # before vLLM is loaded: the engine is this process
        result = inside(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
        print(json.dumps(result))
    else:
        main()
