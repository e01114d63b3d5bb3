"""Time a tokenizer on long prompts: what a server does before its scheduler hears of a request.

`fidelity_rows.py` takes its seconds per prompt token from here.

Usage: .venv/bin/python benchmarks/fidelity_tokenizer.py
"""

import time
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from chunkwise.lab.models import smollm2

RESULT = Path(__file__).parent / "results" / "fidelity_tokenizer.txt"


def main() -> None:
    tokenizer = Tokenizer.from_file(str(Path(smollm2()) / "tokenizer.json"))
    lines = ["$ python benchmarks/fidelity_tokenizer.py", ""]
    for tokens in (1024, 4096, 8192):
        # As load generators make them: consecutive ids, written out as text.
        text = tokenizer.decode([n % tokenizer.get_vocab_size() for n in range(7, 7 + tokens)])
        seconds = []
        for _ in range(9):
            start = time.process_time()
            found = len(tokenizer.encode(text).ids)
            seconds.append(time.process_time() - start)
        took = float(np.median(seconds))
        lines.append(
            f"{found:>6,} tokens: {1e3 * took:5.1f} ms, {1e6 * took / found:.1f} us per token"
        )
    RESULT.write_text("\n".join(lines) + "\n")
    print(RESULT.read_text())


if __name__ == "__main__":
    main()
