"""Durations as people write them."""


def say(seconds: float) -> str:
    """Write a duration for a person. Usage: `say(0.05) == "50ms"`."""
    if seconds < 0.0995:
        return f"{seconds * 1e3:.0f}ms"
    return f"{seconds:.2f}s" if seconds < 9.995 else f"{seconds:.1f}s"
