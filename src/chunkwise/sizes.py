"""Memory sizes as people write them."""

import re

from chunkwise.errors import UserMistake

KIB, MIB, GIB = 2**10, 2**20, 2**30
_UNITS = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def say_bytes(size: float) -> str:
    """Write a size for a person. Usage: `say_bytes(3 * 2**29) == "1.5 GiB"`."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(size) >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size:,.0f} B"


def parse_bytes(text: str) -> int:
    """Read a size. Usage: `parse_bytes("80GiB")`."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?) ?([A-Za-z]{0,3})", text.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise UserMistake(f"`{text[:40]}` is not a size: write it like 80GiB, 24GB or 512MiB.")
    return int(float(found[1]) * _UNITS[found[2].lower()])
