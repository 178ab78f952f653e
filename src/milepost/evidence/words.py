"""Numbers for people."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """Seconds for people: `n/a`, `42 s`, `12 min`, `3.5 h` or `2.1 d`."""
    if seconds is None:
        return "n/a"
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 86_400:.3g} d"


def plural(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`, `10,000 tasks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
