"""The sections of the report about what the run found: best setting, control metric, results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from milepost.evidence import charts
from milepost.evidence.control import Control
from milepost.evidence.words import plural

if TYPE_CHECKING:
    from milepost.evidence.closing import Closing

Context = dict[str, Any]
_CONTROL_ROWS = 20


def best(closing: Closing) -> Context | None:
    table, spec = closing.table, closing.facts.run.spec
    if table.best is None or table.best_by is None or spec is None:
        return None
    by = table.best_by
    values = [v for row in table.first if (v := _number(row.get(by))) is not None]
    value = _number(table.best[by]) or 0.0
    is_spread = len(values) > 2 and min(values) < max(values)
    shown = f" (the first {len(table.first)})" if table.row_count > len(table.first) else ""
    return {
        "by": by,
        "value": _trim(table.best[by]),
        "is": "largest" if spec.work.result.best_is == "max" else "smallest",
        "count": plural(table.row_count, "task"),
        "tied": plural(table.tied_count, "other task") if table.tied_count else "",
        "row": _best_row(table.best, by),
        "strip": charts.strip([*values, value], value) if is_spread else "",
        "low": f"{min(values, default=value):.4g}",
        "high": f"{max(values, default=value):.4g}",
        "shown": shown,
    }


def _best_row(best: Mapping[str, str], by: str) -> list[tuple[str, str]]:
    """Parameters and other results first, then which task it was."""
    own = ("task", "shard")
    rows = [(k, _trim(v)) for k, v in best.items() if k != by and k not in own]
    return rows + [(k, best[k]) for k in own]


def control(closing: Closing) -> Context | None:
    spec, found = closing.facts.run.spec, closing.facts.controls
    if not found or spec is None or spec.control is None:
        return None
    worst_first = sorted(found, key=lambda c: (c.agrees is not False, -(c.sigmas or 0.0)))
    distances = [d for c in found if (d := _signed(c)) is not None]
    svg, limit = charts.pulls(distances, spec.control.sigmas) if distances else ("", 0.0)
    return {
        "metric": spec.control.metric,
        "sigmas": f"{spec.control.sigmas:g}",
        "rows": [_control_row(c) for c in worst_first[:_CONTROL_ROWS]],
        "more": max(0, len(found) - _CONTROL_ROWS),
        "pulls": svg,
        "low": f"{-limit:.2g}",
        "high": f"{limit:.2g}",
    }


def _signed(control: Control) -> float | None:
    if control.value is None or control.reference is None or not control.error:
        return None
    return (control.value - control.reference) / control.error


def _control_row(control: Control) -> Context:
    distance = "n/a" if control.sigmas is None else f"{control.sigmas:.2f} σ"
    return {
        "shard": control.shard,
        "value": control.problem or _short(control.value),
        "reference": _short(control.reference),
        "error": "n/a" if control.error is None else f"{control.error:.2g}",
        "distance": distance,
        "agrees": control.agrees,
    }


def results(closing: Closing) -> Context:
    table = closing.table
    names = [n for n in table.columns if n != "shard"]
    rows = [[_trim(row.get(name, "")) for name in names] for row in table.first]
    all_ = plural(table.row_count, "row")
    first = f"the first {len(rows):,} of {all_}" if table.row_count > len(rows) else all_
    best = None if table.best is None else table.best["task"]
    note = f"{first}; all of them are in results.csv"
    columns = [{"name": name, "kind": "text"} for name in names]
    return {"columns": columns, "rows": rows, "best": best, "note": note}


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if value - value == 0 else None


def _short(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.6g}"


def _trim(text: str) -> str:
    """A long decimal fraction with six digits; everything else as it is."""
    value = _number(text)
    return f"{value:.6g}" if value is not None and "." in text and len(text) > 8 else text
