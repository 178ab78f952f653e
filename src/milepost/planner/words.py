"""Numbers as a person says them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def percent(fraction: float | None) -> str:
    return "n/a" if fraction is None else f"{100.0 * fraction:.3g} %"


def money(cost: Mapping[str, Any] | None) -> str:
    """Total and its parts in the price's currency; n/a when it is not known."""
    if cost is None:
        return "n/a"
    total, parts = money_parts(cost)
    return f"{total}, {parts}"


def money_parts(cost: Mapping[str, Any]) -> tuple[str, str]:
    """The total, or what running costs where the total is not known; and what it consists of."""
    currency = f" {cost['currency']}".rstrip()
    parts = f"of it overhead {amount(cost['overhead'])}"
    if cost["storage"] is None:
        return f"{amount(cost['running'])}{currency}", f"{parts}; storage n/a, not in it"
    if cost["storage"]:
        parts += f", storage {amount(cost['storage'])}"
    return f"{amount(cost['total'])}{currency}", parts


def amount(value: float | None) -> str:
    """Money without its currency: two decimals, or more where those would hide it."""
    if value is None:
        return "n/a"
    return f"{value:.2f}" if value == 0.0 or abs(value) >= 0.1 else f"{value:.2g}"


def duration(seconds: float | None) -> str:
    """Seconds as a person says them: 45 s, 12 min, 3.5 h, 2.1 d; n/a for None."""
    if seconds is None:
        return "n/a"
    for size, unit in ((86400.0 * 2, "d"), (3600.0, "h"), (120.0, "min")):
        if seconds > size or (unit == "h" and seconds >= size):
            return f"{seconds / {'d': 86400.0, 'h': 3600.0, 'min': 60.0}[unit]:.3g} {unit}"
    return f"{seconds:.3g} s"
