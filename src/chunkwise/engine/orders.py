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
from math import inf
from pathlib import Path
from typing import Literal

from chunkwise.durations import say
from chunkwise.engine.promises import CLASS_ARGUMENT as CLASS_ARGUMENT
from chunkwise.engine.promises import Promise, Promises
from chunkwise.errors import UserMistake
from chunkwise.slo import parse_duration

Mode = Literal["off", "observe", "on"]
MOST_CLASSES = 16
LEAST_TARGET, MOST_ITL, MOST_TTFT = 0.001, 60.0, 3600.0  # seconds
NONE = "none"  # a class to which nothing is promised says itl=none
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
    targets: tuple[tuple[str, float | None, float | None], ...] = ()
    """Of each class: its name, first-token target, inter-token target."""

    @property
    def promises(self) -> Promises:
        """What each request was promised."""
        return Promises(
            _promise(self.ttft, self.itl),
            {name: _promise(ttft, itl) for name, ttft, itl in self.targets},
        )

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> "Orders":
        """Read the environment of this process."""
        remarks: list[str] = []
        mode = _mode(environment.get("CHUNKWISE", ""), remarks)
        ttft = _target("CHUNKWISE_TTFT", environment.get("CHUNKWISE_TTFT"), MOST_TTFT, remarks)
        itl = _target("CHUNKWISE_ITL", environment.get("CHUNKWISE_ITL"), MOST_ITL, remarks)
        classes = _classes(environment.get("CHUNKWISE_CLASSES", ""), ttft, itl, remarks)
        return cls(
            mode,
            folder(environment),
            tuple(name for name, _, _ in classes),
            ttft,
            itl,
            tuple(remarks),
            classes,
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
            return "on"
        case other:
            remarks.append(
                f"CHUNKWISE={other[:20]!r} is not off, observe or on: vLLM's own scheduler runs."
            )
            return "off"


def _classes(
    text: str, ttft: float | None, itl: float | None, remarks: list[str]
) -> tuple[tuple[str, float | None, float | None], ...]:
    """Read `chat:ttft=1s:itl=50ms,batch:itl=none`; a target left out is the server's."""
    found: dict[str, tuple[str, float | None, float | None]] = {}
    for part in text.split(","):
        name, *settings = (word.strip() for word in part.split(":"))
        if not name and not settings:
            continue
        own = {"ttft": ttft, "itl": itl}
        good = _CLASS.fullmatch(name) is not None
        for setting in settings:
            key, _, value = setting.partition("=")
            good = good and key in own and bool(value)
            if good:
                most = MOST_TTFT if key == "ttft" else MOST_ITL
                own[key] = (
                    None
                    if value == NONE
                    else _target(f"CHUNKWISE_CLASSES, {name}, {key}", value, most, remarks)
                )
        if not good or len(found) == MOST_CLASSES:
            remarks.append(
                f"CHUNKWISE_CLASSES takes up to {MOST_CLASSES} names of letters, digits, dots and "
                f"dashes, separated by commas, each with its targets if it has its own, such as "
                f"chat:ttft=1s:itl=50ms: no classes are kept."
            )
            return ()
        found[name] = (name, own["ttft"], own["itl"])
    return tuple(found.values())


def _target(name: str, text: str | None, most: float, remarks: list[str]) -> float | None:
    if not text:
        return None
    try:
        seconds = parse_duration(text)
        if seconds <= 0:
            raise UserMistake("A target must be longer than nothing.")
    except UserMistake as mistake:
        remarks.append(f"{name}: {mistake} It is left out.")
        return None
    kept = min(most, max(LEAST_TARGET, seconds))
    if kept != seconds:
        remarks.append(f"{name}: {say(seconds)} is taken as {say(kept)}.")
    return kept


def _promise(ttft: float | None, itl: float | None) -> Promise:
    return Promise(inf if ttft is None else ttft, inf if itl is None else itl)
