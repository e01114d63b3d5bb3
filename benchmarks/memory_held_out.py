"""The CPU engine's KV pool for shapes that the estimate was not set by.

`cost/memory.py` has one constant for what a CPU process holds, chosen on the three
models of `memory.py`; how good it is elsewhere shows here.
Usage: .venv/bin/python benchmarks/memory_held_out.py > benchmarks/results/memory-held-out.txt
"""

import json
import shutil
import tempfile
from pathlib import Path

import memory as measured

from chunkwise.cost import memory
from chunkwise.cost.shape import in_dtype, read_shape
from chunkwise.lab import models

SHAPES = {
    "untied, wide": {
        "tie_word_embeddings": False, "num_hidden_layers": 12, "hidden_size": 1024,
        "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4,
        "head_dim": 64,
    },
    "tied, deep and narrow": {
        "num_hidden_layers": 48, "hidden_size": 512, "intermediate_size": 1408,
        "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64,
    },
}  # fmt: skip


def main() -> None:
    say = "{:,}".format
    print("$ python benchmarks/memory_held_out.py\n", flush=True)
    for name, change in SHAPES.items():
        with tempfile.TemporaryDirectory() as home:
            shutil.copytree(models.timing_model("130m"), home, dirs_exist_ok=True)
            config = Path(home) / "config.json"
            config.write_text(json.dumps(json.loads(config.read_text()) | change))
            shape = in_dtype(read_shape(home))
            for share in (0.2, 0.3):
                found = measured.child("pool", home, fraction=share)
                ours = memory.cpu_pool(shape, found["total"], share, found["block"]).tokens
                line = measured.row(f"{name}, fraction {share}", ours, found["tokens"], say)
                print(line, flush=True)


if __name__ == "__main__":
    main()
