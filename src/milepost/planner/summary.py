"""A plan in ten calm lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.planner.words import duration, money, percent


def summarise(plan: Mapping[str, Any]) -> str:
    """The plan for a terminal of 80 columns."""
    return "\n".join(f"{name:<10} {text}"[:80].rstrip() for name, text in _lines(plan))


def _lines(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    overhead = plan["overhead"]
    notes = plan["notes"]
    lines = [
        ("run", plan["run"]),
        ("shards", _shards(plan)),
        ("walltime", f"{duration(plan['walltime_s'])} a shard"),
        ("interval", f"{duration(plan['interval_s'])}, {plan['interval_source']}"),
        ("mtbf", _mtbf(plan)),
        ("overhead", f"{percent(overhead['fraction'])}, {duration(overhead['seconds'])} in all"),
        ("machine", f"{plan['profile'] or 'this machine'}, {plan['mode']}"),
        ("cost", money(plan["cost"])),
        ("notes", f"{len(notes)}: {notes[0]}" if notes else "none"),
        ("report", f"results/{plan['run']}/plan/report.html"),
    ]
    return lines


def _shards(plan: Mapping[str, Any]) -> str:
    text = f"{plan['shard_count']}"
    if plan["tasks_per_shard"] is not None:
        text += f" of up to {plan['tasks_per_shard']} tasks"
    return f"{text}, {duration(plan['shard_s'])} each"


def _mtbf(plan: Mapping[str, Any]) -> str:
    overhead = plan["overhead"]
    source = next(row["source"] for row in plan["assumptions"] if row["name"] == "mtbf_s")
    return f"{duration(overhead['mtbf_s'])}, {source}"
