"""The plan as one self-contained page: no script, no external resource, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from milepost.planner.chart import draw
from milepost.planner.chart_cost import SHAPES, draw_cost
from milepost.planner.words import amount, duration, money_parts, percent

_SECONDS = ("I_opt", "Overhead_seconds")
_RATES = ("Overhead_ckpt", "Loss_expected", "Overhead")


def report_html(plan: Mapping[str, Any]) -> str:
    """Render plan.json; the page is a function of the plan alone."""
    import jinja2

    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters.update(duration=duration, plain=_plain, amount=amount, percent=percent)
    return pages.get_template("report.html").render(
        plan=plan,
        facts=_facts(plan),
        chart=draw(plan),
        cost_chart=draw_cost(plan),
        shapes={
            kind: shape.format(kind=f"point {kind}", x=0, y=0) for kind, shape in SHAPES.items()
        },
        band=_band(plan["overhead"]),
        no_chart=_no_chart(plan),
        no_frontier=_no_frontier(plan),
        numbers=[_number_row(row) for row in plan["numbers"]],
        differ=_differ(plan["numbers"]),
        answer=_answer(plan),
    )


def _facts(plan: Mapping[str, Any]) -> list[dict[str, str]]:
    overhead = plan["overhead"]
    size = plan["tasks_per_shard"]
    per_shard = duration(plan["shard_s"])
    tasks = f"up to {size} tasks, {per_shard} each" if size is not None else f"{per_shard} each"
    places = len(plan["placement"])
    shortest = f"; the shortest of {places} places" if places > 1 else ""
    largest = f", the largest of {places} places" if places > 1 else ""
    return [
        _fact("shards", str(plan["shard_count"]), tasks),
        _fact("walltime", duration(plan["walltime_s"]), "enough for a shard"),
        _fact(
            "checkpoint interval", duration(plan["interval_s"]), plan["interval_source"] + shortest
        ),
        _fact(
            "expected overhead",
            percent(overhead["fraction"]),
            f"textbook {percent(overhead['textbook_fraction'])}; "
            f"in all {duration(overhead['seconds'])}",
        ),
        _fact("machine", plan["profile"] or "this machine", plan["mode"] + largest),
        _fact("expected cost", *_money(plan["cost"])),
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


def _no_frontier(plan: Mapping[str, Any]) -> str:
    if plan["choice"] is None:
        return "No profile with a price is known, so there is nothing to choose between."
    return "Seconds or overhead of a shard are not known, and so neither is when it would be done."


def _number_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of textbook and exact number as people read it."""
    name, unit = row["name"], row["unit"]
    if name in _SECONDS:
        texts = [duration(row["textbook"]), duration(row["exact"])]
    elif name in _RATES:
        texts = [percent(row["textbook"]), percent(row["exact"])]
    else:
        texts = [f"{amount(v)} {unit}".rstrip() if v is not None else "n/a" for v in _both(row)]
    return {"name": name, "texts": texts, "is_notable": row["is_notable"]}


def _both(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    return row["textbook"], row["exact"]


def _differ(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which of the textbook's numbers are off by more than 5 %, and by how much."""
    found = []
    for row in rows:
        textbook, exact = _both(row)
        if row["is_notable"] and exact:
            found.append(f"{row['name']} by {100.0 * (textbook or 0.0) / exact - 100.0:+.3g} %")
    return found


def _answer(plan: Mapping[str, Any]) -> str:
    """Who chose, and how sure it is that nothing better exists."""
    choice = plan["choice"]
    if choice is None:
        return ""
    text = f"{choice['solver']} chose; "
    if choice["gap"] == 0.0:
        text += "a better choice does not exist within these assumptions."
    else:
        text += f"a better choice could save at most {percent(choice['gap'])}."
    if choice["class_error"] > 1e-6:
        text += (
            f" Shards of similar size were taken as equal, each within "
            f"{percent(choice['class_error'])} of its class."
        )
    return text


def _plain(value: Any) -> str:
    """A value for people: n/a for None, thousands apart, no needless digits."""
    if value is None:
        return "n/a"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}".replace(",", "\u202f")
    if isinstance(value, float):
        return f"{value:,.4g}".replace(",", "\u202f") if abs(value) < 1e4 else _plain(round(value))
    return str(value)
