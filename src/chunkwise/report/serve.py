"""What `chunkwise serve` says before vLLM's own log begins."""

from dataclasses import asdict
from typing import Any

from chunkwise.engine.compat_server import SCRIPT, masked
from chunkwise.engine.serve import Launch
from chunkwise.report.terminal import print_command, print_lines, print_note, print_table


def facts(ready: Launch) -> dict[str, Any]:
    """Return what `--json` shows: no key is in it."""
    orders = ready.orders
    return {
        "mode": orders.mode,
        "targets": {"itl": orders.itl, "ttft": orders.ttft},
        "classes": list(orders.classes),
        "records": str(orders.folder),
        "settings": [asdict(item) for item in ready.settings],
        "added": [asdict(item) for item in ready.added],
        "environment": dict(ready.environment),
        "command": masked(ready.command),
        "vllm_serve": ready.plain,
    }


def show(ready: Launch) -> None:
    """Write the settings, what was added and why, and the line that does without us."""
    if ready.settings:
        rows = [[item.name, item.value, item.source] for item in ready.settings]
        print_table("Settings", ["argument", "value", "from"], rows, text={0, 1, 2})
    print_table(
        "Added to them",
        ["what", "why"],
        [[item.what, item.why] for item in ready.added],
        text={0, 1},
    )
    print_lines(
        [
            "The rest is vLLM's default for this machine (`chunkwise env`). Records go to "
            f"{ready.orders.folder}.",
            "The same by hand:",
            "",
        ]
    )
    print_command(ready.plain)
    print_lines([""])
    for remark in (*_about_the_line(ready), *ready.orders.remarks):
        print_note(remark)


def _about_the_line(ready: Launch) -> list[str]:
    found = []
    if "***" in ready.plain:
        found.append("Keys are not shown: put yours where *** stands, or into VLLM_API_KEY.")
    if SCRIPT not in ready.command:
        module = " ".join(ready.command[2:5])
        found.append(f"This build's `vllm` does not run: for `vllm serve` take `python {module}`.")
    return found
