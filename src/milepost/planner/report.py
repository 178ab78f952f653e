"""The plan as one self-contained page: no script, no external resource, light and dark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from milepost.planner.chart import draw
from milepost.planner.words import duration, money_parts, percent


def report_html(plan: Mapping[str, Any]) -> str:
    """Render plan.json; the page is a function of the plan alone."""
    import jinja2

    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    pages.filters.update(duration=duration, plain=_plain)
    return pages.get_template("report.html").render(
        plan=plan,
        facts=_facts(plan),
        chart=draw(plan),
        band=_band(plan["overhead"]),
        no_chart=_no_chart(plan),
    )


def _facts(plan: Mapping[str, Any]) -> list[dict[str, str]]:
    overhead, cost = plan["overhead"], plan["cost"]
    size = plan["tasks_per_shard"]
    per_shard = duration(plan["shard_s"])
    tasks = f"up to {size} tasks, {per_shard} each" if size is not None else f"{per_shard} each"
    machine = plan["profile"] or "this machine"
    return [
        _fact("shards", str(plan["shard_count"]), tasks),
        _fact("walltime", duration(plan["walltime_s"]), "for each shard"),
        _fact("checkpoint interval", duration(plan["interval_s"]), plan["interval_source"]),
        _fact(
            "expected overhead",
            percent(overhead["fraction"]),
            f"textbook {percent(overhead['textbook_fraction'])}; "
            f"in all {duration(overhead['seconds'])}",
        ),
        _fact("machine", machine, plan["mode"]),
        _fact("expected cost", *_money(cost)),
    ]


def _fact(name: str, value: str, more: str = "") -> dict[str, str]:
    return {"name": name, "value": value, "more": more}


def _money(cost: Mapping[str, Any] | None) -> tuple[str, str]:
    if cost is None:
        return "n/a", "no price or no duration is known"
    return money_parts(cost)


def _band(overhead: Mapping[str, Any]) -> str:
    return f"{duration(overhead['mtbf_low_s'])} to {duration(overhead['mtbf_high_s'])}"


def _no_chart(plan: Mapping[str, Any]) -> str:
    if plan["overhead"]["t_ckpt_s"] == 0.0:
        return (
            "There is no interval to choose: a finished task or stage is durable by itself, and "
            "an interruption costs at most what was in progress."
        )
    return "No checkpoint was measured, so the overhead at other intervals is not known."


def _plain(value: Any) -> str:
    """A value for people: n/a for None, thousands apart, no needless digits."""
    if value is None:
        return "n/a"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}".replace(",", "\u202f")
    if isinstance(value, float):
        return f"{value:,.4g}".replace(",", "\u202f") if abs(value) < 1e4 else _plain(round(value))
    return str(value)
