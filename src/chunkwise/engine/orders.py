"""What the person who starts the server asked of the plug-in, from the environment.

`CHUNKWISE` is `off`, `observe` or `on`; unset means `observe`, because whoever
names the plug-in wants to see something, and watching changes nothing.
Invariant: a value that cannot be read never stops the server: a switch that is
not understood means off, a target that is not understood means none.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from chunkwise.errors import UserMistake
from chunkwise.slo import parse_duration

Mode = Literal["off", "observe", "on"]
MOST_CLASSES = 16
CLASS_ARGUMENT = "chunkwise_class"  # in a request's `vllm_xargs`
_CLASS = re.compile(r"[A-Za-z0-9_.-]{1,32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Orders:
    """Usage: `Orders.read().mode`. `remarks` are sentences for the log."""

    mode: Mode
    folder: Path
    classes: tuple[str, ...] = ()
    ttft: float | None = None
    itl: float | None = None
    remarks: tuple[str, ...] = ()

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> "Orders":
        """Read the environment of this process."""
        remarks: list[str] = []
        return cls(
            _mode(environment.get("CHUNKWISE", ""), remarks),
            folder(environment),
            _classes(environment.get("CHUNKWISE_CLASSES", ""), remarks),
            _target("CHUNKWISE_TTFT", environment, remarks),
            _target("CHUNKWISE_ITL", environment, remarks),
            tuple(remarks),
        )


def folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where captures go: `$CHUNKWISE_DIR`, or a folder in the user's cache."""
    if given := environment.get("CHUNKWISE_DIR"):
        return Path(given).expanduser()
    cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "chunkwise" / "captures"


def _mode(text: str, remarks: list[str]) -> Mode:
    match text.strip().lower():
        case "off":
            return "off"
        case "" | "observe":
            return "observe"
        case "on":
            remarks.append("CHUNKWISE=on only observes: this version does not act yet.")
            return "on"
        case other:
            remarks.append(
                f"CHUNKWISE={other[:20]!r} is not off, observe or on: vLLM's own scheduler runs."
            )
            return "off"


def _classes(text: str, remarks: list[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if len(names) > MOST_CLASSES or not all(_CLASS.fullmatch(name) for name in names):
        remarks.append(
            f"CHUNKWISE_CLASSES takes up to {MOST_CLASSES} names of letters, digits, dots and "
            f"dashes, separated by commas: no classes are kept."
        )
        return ()
    return names


def _target(name: str, environment: Mapping[str, str], remarks: list[str]) -> float | None:
    if not (text := environment.get(name)):
        return None
    try:
        if (seconds := parse_duration(text)) > 0:
            return seconds
        raise UserMistake("A target must be longer than nothing.")
    except UserMistake as mistake:
        remarks.append(f"{name}: {mistake} It is left out.")
        return None
