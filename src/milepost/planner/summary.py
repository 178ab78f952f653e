"""A plan in ten calm lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.planner.words import duration, money, percent


def summarise(plan: Mapping[str, Any]) -> str:
    """The plan for a terminal of 80 columns."""
    notes = plan["notes"]
    lines = [
        ("run", plan["run"]),
        *plan_lines(plan),
        ("notes", f"{len(notes)}: {notes[0]}" if notes else "none"),
        ("report", f"results/{plan['run']}/plan/report.html"),
    ]
    return "\n".join(f"{name:<10} {text}"[:80].rstrip() for name, text in lines)


def plan_lines(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was planned, by name."""
    overhead = plan["overhead"]
    return [
        ("shards", _shards(plan)),
        ("walltime", f"{duration(plan['walltime_s'])} a shard"),
        ("interval", f"{duration(plan['interval_s'])}, {plan['interval_source']}"),
        ("mtbf", _mtbf(plan)),
        ("overhead", _overhead(overhead)),
        ("machine", _machine(plan)),
        ("cost", money(plan["cost"])),
    ]


def _shards(plan: Mapping[str, Any]) -> str:
    text = f"{plan['shard_count']}"
    if plan["tasks_per_shard"] is not None:
        text += f" of up to {plan['tasks_per_shard']} tasks"
    done = "" if plan["expected_s"] is None else f", all done in {duration(plan['expected_s'])}"
    return f"{text}, {duration(plan['shard_s'])} each{done}"


def _overhead(overhead: Mapping[str, Any]) -> str:
    text = f"{percent(overhead['fraction'])}, {duration(overhead['seconds'])} in all"
    return f"{text} (textbook {percent(overhead['textbook_fraction'])})"


def _machine(plan: Mapping[str, Any]) -> str:
    parts = plan["placement"]
    if len(parts) < 2:
        return f"{plan['profile'] or 'this machine'}, {plan['mode']}"
    return "; ".join(f"{one['shards']} on {one['profile']}, {one['mode']}" for one in parts)


def _mtbf(plan: Mapping[str, Any]) -> str:
    overhead = plan["overhead"]
    source = next(row["source"] for row in plan["assumptions"] if row["name"] == "mtbf_s")
    return f"{duration(overhead['mtbf_s'])}, {source}"
