"""The sections of the report about time: attempts, core hours, the queue, and the table of shards.

All numbers come out of the record, so that the page and the record cannot tell two stories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from milepost.clock import epoch, iso
from milepost.evidence import charts
from milepost.evidence.charts_activity import activity
from milepost.evidence.hours import ALLOCATED
from milepost.evidence.types import ShardEvidence
from milepost.evidence.words import core_hours, duration, plural

if TYPE_CHECKING:
    from milepost.evidence.closing import Closing

Context = dict[str, Any]
Record = Mapping[str, Any]
_PARTS = {
    "useful": ("useful work", "--work"),
    "checkpoint": ("checkpoints", "--mark"),
    "lost": ("done again", "--lost"),
    "overhead": ("overhead", "--other"),
    "waiting": ("waiting, not allocated", "--line"),
}
_COLUMNS = (
    ("shard", "text"),
    ("verdict", "verdict"),
    ("done", "number"),
    ("failed", "number"),
    ("missing", "number"),
    ("attempts", "number"),
    ("checkpoints", "number"),
    ("at work", "duration"),
    ("lost", "duration"),
    ("held", "duration"),
    ("pending", "duration"),
    ("time line", "line"),
    ("why", "text"),
)


def time_line(closing: Closing) -> Context | None:
    """Rows of attempts; of many shards the sum of all above those with most attempts."""
    shards = closing.facts.run.every_shard
    line = charts.time_line(shards)
    if line is None:
        return None
    tried = sum(bool(s.attempts) for s in shards)
    is_all = tried == len(line.shards)
    return {
        "all": None if is_all else _all(shards),
        "svg": line.svg,
        "names": [s.name for s in line.shards],
        "row_px": charts.ROW_PX,
        **_axis(line.start_s, line.end_s),
        "note": ""
        if is_all
        else f"{len(line.shards)} of {plural(tried, 'shard')}, those with most attempts;"
        " every shard has its own in the table of shards",
    }


def _all(shards: Sequence[ShardEvidence]) -> Context | None:
    chart = activity(shards)
    if chart is None:
        return None
    return {
        "svg": chart.svg,
        "most": f"{chart.most:.3g}",
        "strips": chart.strips,
        **_axis(chart.start_s, chart.end_s),
    }


def _axis(start_s: float, end_s: float) -> Context:
    length = end_s - start_s
    return {
        "start": iso(start_s)[:16].replace("T", " ") + " UTC",
        "middle": duration(length / 2),
        "length": duration(length),
    }


def hours(record: Record) -> Context | None:
    """The bar of what was allocated, and each part against the plan; None without attempts."""
    split = {row["part"]: row for row in record["hours"]}
    seen = {part: split[part]["observed_core_h"] for part in ALLOCATED}
    allocated = sum(value or 0.0 for value in seen.values())
    if not allocated:
        return None
    bar = [
        {"name": _PARTS[p][0], "color": _PARTS[p][1], "percent": f"{100 * v / allocated:.3f}"}
        for p, v in seen.items()
        if v
    ]
    rows = [_hours_row(part, split[part], allocated) for part in _PARTS]
    label = "; ".join(f"{p['name']} {float(p['percent']):.3g} %" for p in bar)
    return {"bar": bar, "rows": rows, "label": label}


def _hours_row(part: str, row: Record, allocated: float) -> Context:
    seen = row["observed_core_h"]
    is_share = part in ALLOCATED and seen is not None
    return {
        "part": part,
        "name": _PARTS[part][0],
        "color": _PARTS[part][1],
        "planned": core_hours(row["planned_core_h"]),
        "observed": core_hours(seen),
        "share": f"{100 * seen / allocated:.3g} %" if is_share else "",
    }


def queue(record: Record) -> Context:
    """The wait in Slurm's queue, in two parts."""
    told = record["queue"]
    longest = {n: told[f"longest_{n}_s"] for n in ("held", "pending")}
    return {
        "executions": f"{told['executions']:,}" if told["executions"] else "",
        "held": duration(told["held_s"]),
        "pending": duration(told["pending_s"]),
        "longest_held": duration(longest["held"]),
        "longest_pending": duration(longest["pending"]),
    }


def shards(record: Record) -> Context:
    """The table of shards: open ones first. Durations stay numbers, for sorting."""
    open_first = sorted(record["per_shard"], key=lambda s: s["verdict"] == "DONE")
    span = _span(record["per_shard"])
    used = {name for name, kind in _COLUMNS if kind != "duration" or _is_measured(record, name)}
    columns = [{"name": n, "kind": k} for n, k in _COLUMNS if n in used]
    rows = [[_cell(s, c["name"], span) for c in columns] for s in open_first]
    return {"columns": columns, "rows": rows, "best": None}


def _is_measured(record: Record, column: str) -> bool:
    """A column of n/a alone is not worth its place."""
    return any(s[_DURATIONS[column]] is not None for s in record["per_shard"])


_DURATIONS = {"at work": "wall_s", "lost": "lost_s", "held": "held_s", "pending": "pending_s"}


def _cell(shard: Record, column: str, span: tuple[float, float] | None) -> Any:
    if column in _DURATIONS:
        return shard[_DURATIONS[column]]
    if column == "attempts":
        return len(shard["attempts"])
    if column == "checkpoints":
        return shard["checkpoints"]["count"]
    if column == "time line":
        return [] if span is None else [_bar(a, span) for a in shard["attempts"] if a["started"]]
    if column == "why":
        return "" if shard["verdict"] == "DONE" else shard["reason"]
    return shard[column]


def _span(shards: Sequence[Record]) -> tuple[float, float] | None:
    """When the first attempt began and how long it was until the last one ended."""
    attempts = [a for s in shards for a in s["attempts"] if a["started"]]
    if not attempts:
        return None
    first = min(epoch(a["started"]) for a in attempts)
    return first, max(1.0, max(epoch(_end(a)) for a in attempts) - first)


def _end(attempt: Record) -> str:
    return str(attempt["ended"] or attempt["last_sign"] or attempt["started"])


def _bar(attempt: Record, span: tuple[float, float]) -> list[Any]:
    """Start, end and lost part of an attempt in thousandths of the whole time, and its end."""
    first, length = span
    start, end = (epoch(t) - first for t in (attempt["started"], _end(attempt)))
    parts = (start, end, attempt["lost_s"] or 0.0)
    smooth = {"done": "", "ended": "", "running": "", "failed": "fail", "error": "fail"}
    return [*(round(1000 * p / length) for p in parts), smooth.get(attempt["how"], "cut")]
