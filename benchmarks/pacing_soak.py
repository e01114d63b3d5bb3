"""A soak of the paced scheduler: random aborts, classes, lengths, prefixes, pools and settings.

vLLM's real scheduler, with one batch in flight or two, and no model behind it; time
is a device of known speed. It ends with an error if a request is lost or stuck, if
vLLM's own assertions fail, or if the pacer gives up.

Usage: python benchmarks/pacing_soak.py [REQUESTS]
"""

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

REQUESTS, EACH = 20_000, 500
SUMS = ("steps", "aborted", "preempted", "decode_only", "set_aside", "turns", "fallbacks")


def main() -> None:
    import pytest
    from tests.engine.soaking import Device, builder, soak

    from chunkwise.engine import clock
    from chunkwise.lab.models import timing_model

    requests = int(sys.argv[1]) if sys.argv[1:] else REQUESTS
    total: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for seed in range(requests // EACH):
        began = time.monotonic()
        with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
            device = Device(seed)
            patch.setattr(clock, "now", lambda device=device: device.now)
            building = builder(timing_model("30m"), Path(folder), patch)
            seen = soak(next(building), device, patch, EACH, 1000 + seed)
            next(building, None)  # closes them
        total.update({name: seen[name] for name in SUMS})
        kinds[f"{seen['depth']} in flight, {seen['blocks']:,} blocks"] += EACH
        spent = time.monotonic() - began
        print(f"{(seed + 1) * EACH:,} requests ({spent:.0f} s): {dict(seen)}", file=sys.stderr)
    lines = [f"{requests:,} requests, {requests // EACH} engines: none lost, none stuck.", ""]
    lines += [f"{count:>10,}  requests with {kind}" for kind, count in sorted(kinds.items())]
    lines += [f"{total[name]:>10,}  {name.replace('_', ' ')}" for name in SUMS]
    print("\n".join(lines))
    if requests >= REQUESTS:
        (ROOT / "benchmarks" / "results" / "pacing-soak.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
