"""The promise: when the first token comes, and how long a gap may be.

An `Slo` says what a request was promised and which share of requests must get
it. Durations are written as people write them, "50ms" or "1s".
"""

import re
from dataclasses import dataclass
from math import inf, isfinite

from chunkwise.durations import say
from chunkwise.errors import UserMistake

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*([a-z]{1,3})\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Slo:
    """A promise in seconds; infinity where nothing was promised.

    Usage: `Slo(ttft=parse_duration("1s"), itl=parse_duration("50ms"), share=0.9)`
    """

    ttft: float = inf
    itl: float = inf
    share: float = 0.99

    def __post_init__(self) -> None:
        for name, target in (("ttft", self.ttft), ("itl", self.itl)):
            if not target > 0:
                raise UserMistake(f"The target {name} must be longer than nothing, not {target}.")
        if not 0 < self.share <= 1:
            raise UserMistake(f"The share must be above 0 and at most 1, not {self.share}.")

    def __str__(self) -> str:
        targets = [
            f"{name} {say(target)}"
            for name, target in (("TTFT", self.ttft), ("ITL", self.itl))
            if isfinite(target)
        ]
        return f"{' and '.join(targets) or 'no target'} for {self.share:.0%} of requests"


def parse_duration(text: str) -> float:
    """Return the seconds that a duration says. Usage: `parse_duration("50ms") == 0.05`."""
    match = _DURATION.fullmatch(text)
    if match is None or match[2] not in _UNITS:
        raise UserMistake(
            f"`{text[:40]}` is not a duration: write a number and a unit, such as 50ms or 1.5s."
        )
    return float(match[1]) * _UNITS[match[2]]
