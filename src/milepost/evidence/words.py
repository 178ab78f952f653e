"""Numbers for people."""

from __future__ import annotations

from collections.abc import Sequence

NAMED = 3


def duration(seconds: float | None) -> str:
    """Seconds for people: `n/a`, `42 s`, `12 min`, `3.5 h` or `2.1 d`."""
    if seconds is None:
        return "n/a"
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 86_400:.3g} d"


def core_hours(value: float | None) -> str:
    """Core hours for people: `n/a`, `0.0143`, `12.5`, `1,240`."""
    if value is None:
        return "n/a"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def plural(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`, `10,000 tasks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def some(names: Sequence[str]) -> str:
    """The first few of many: `a, b, c and 7 more`."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def size(count: float | None) -> str:
    """Bytes for people: `n/a`, `512 B`, `1.5 kB`, `2.1 MB`, `3.4 GB`."""
    if count is None:
        return "n/a"
    for power, unit in ((1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")):
        if count < 1000 * power:
            return f"{count / power:.3g} {unit}"
    return f"{count / 1e12:.3g} TB"
