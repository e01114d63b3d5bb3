"""Run `chunkwise demo` in its three forms and keep what it printed.

The README and the page "See it happen" show these files.
Usage: .venv/bin/python benchmarks/demo.py
"""

import os
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
FORMS = {
    "demo-async.txt": [],
    "demo-simple.txt": ["--mode", "simple"],
    "demo-sweep.txt": ["--sweep", "32,128,512,off"],
}


def main() -> None:
    for name, arguments in FORMS.items():
        command = [sys.executable, "-m", "chunkwise", "demo", *arguments]
        start = time.monotonic()
        result = subprocess.run(
            command,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "96"},
        )
        seconds = time.monotonic() - start
        shown = " ".join(["$ chunkwise demo", *arguments])
        lines = [line.rstrip() for line in result.stdout.splitlines()]
        text = "\n".join([shown, "", *lines, "", f"(took {seconds:.0f}s)", ""])
        (RESULTS / name).write_text(text)
        print(text)


if __name__ == "__main__":
    main()
