"""Cost against deadline as an inline SVG: the frontier, its points by mode, the chosen one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from milepost.planner.axes import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Linear,
    caption,
    heading,
    level,
    picture,
    place_x,
    place_y,
    unit_of,
    upright,
)
from milepost.planner.words import amount, duration

SHAPES = {
    "on-demand": '<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>',
    "interruptible": '<path class="{kind}" d="M{x:.1f} {y:.1f}m0 -6.5l6.5 11h-13z"/>',
    "reserved": '<path class="{kind}" d="M{x:.1f} {y:.1f}m-5 -5h10v10h-10z"/>',
    "mixed": '<path class="{kind}" d="M{x:.1f} {y:.1f}m0 -7l7 7l-7 7l-7 -7z"/>',
}
"""Each kind of placement has a shape of its own, so that it needs no colour to be told."""


@dataclass(frozen=True, slots=True)
class Point:
    """A deadline that can be met and what it costs then; `kind` is the mode, or mixed."""

    time_s: float
    cost: float
    kind: str
    where: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class CostChart:
    svg: str
    points: tuple[Point, ...]
    kinds: tuple[str, ...]


def draw_cost(plan: Mapping[str, Any]) -> CostChart | None:
    """The chart of a plan; None when no price or no time is known."""
    points = _points(plan)
    if not points:
        return None
    size, unit = unit_of(points[-1].time_s)
    wish = _wishes(plan)
    times = [point.time_s / size for point in points]
    times += [] if wish[0] is None else [wish[0] / size]
    costs = [point.cost for point in points] + ([] if wish[1] is None else [wish[1]])
    across = Linear(0.0, 1.12 * max(times) or 1.0)
    up = Linear(0.0, 1.15 * max(costs) or 1.0)
    places = [(place_x(across.share(p.time_s / size)), place_y(up.share(p.cost))) for p in points]
    parts = [level(place_y(up.share(cost)), amount_tick(cost)) for cost in up.ticks()]
    parts += [upright(place_x(across.share(t)), f"{t:.6g}") for t in across.ticks()]
    currency = escape((plan["cost"] or {}).get("currency", ""))
    parts += [heading(f"cost ({currency})"), caption(f"deadline ({unit})")]
    parts += _wish_lines(across, up, size, wish)
    parts.append(f'<path class="frontier" d="{_steps(places)}"/>')
    parts += [_mark(p, at) for p, at in zip(points, places, strict=True) if not p.is_chosen]
    parts += [_mark(p, at) for p, at in zip(points, places, strict=True) if p.is_chosen]
    said = "; ".join(f"{duration(p.time_s)}: {_money(plan, p.cost)}, {p.where}" for p in points)
    svg = picture("cost", "Least cost against deadline", said, parts)
    kinds = tuple(kind for kind in SHAPES if any(point.kind == kind for point in points))
    return CostChart(svg, tuple(points), kinds)


def amount_tick(cost: float) -> str:
    """A round amount, without decimals that say nothing."""
    return f"{cost:,.6g}".replace(",", "\u202f")


def _points(plan: Mapping[str, Any]) -> list[Point]:
    return [_point(one) for one in plan.get("frontier") or ()]


def _point(one: Mapping[str, Any]) -> Point:
    shards: Mapping[str, int] = one["shards"]
    modes = {name.rpartition(", ")[2] for name in shards}
    where = "; ".join(f"{count} on {name}" for name, count in shards.items())
    kind = modes.pop() if len(modes) == 1 else "mixed"
    return Point(one["time_s"], one["cost"], kind, where, one["is_chosen"])


def _wishes(plan: Mapping[str, Any]) -> tuple[float | None, float | None]:
    rows = {row["name"]: row["value"] for row in plan["assumptions"]}
    hours = rows.get("deadline_h")
    return None if hours is None else 3600.0 * hours, rows.get("budget")


def _wish_lines(
    across: Linear, up: Linear, size: float, wish: tuple[float | None, float | None]
) -> list[str]:
    """Deadline and budget, where they were stated."""
    parts = []
    if wish[0] is not None:
        x = place_x(across.share(wish[0] / size))
        parts.append(f'<path class="wish" d="M{x:.1f} {TOP:g}V{HEIGHT - BOTTOM:g}"/>')
        parts.append(f'<text class="wish end" x="{x - 5:.1f}" y="{TOP + 12:g}">deadline</text>')
    if wish[1] is not None:
        y = place_y(up.share(wish[1]))
        parts.append(f'<path class="wish" d="M{LEFT:g} {y:.1f}H{WIDTH - RIGHT:g}"/>')
        parts.append(
            f'<text class="wish end" x="{WIDTH - RIGHT - 4:g}" y="{y - 5:.1f}">budget</text>'
        )
    return parts


def _steps(places: Sequence[tuple[float, float]]) -> str:
    """A deadline between two points costs as much as the sooner one."""
    least = places[0][1]
    path = f"M{places[0][0]:.1f} {TOP:g}V{least:.1f}"
    for x, y in places[1:]:
        least = max(least, y)  # downwards is cheaper; a choice may lie above
        path += f"H{x:.1f}V{least:.1f}"
    return f"{path}H{WIDTH - RIGHT:g}"


def _mark(point: Point, at: tuple[float, float]) -> str:
    shape = SHAPES[point.kind].format(kind=f"point {point.kind}", x=at[0], y=at[1])
    ring = f'<circle class="ring" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="11"/>'
    title = f"<title>{duration(point.time_s)}, {amount(point.cost)}: {escape(point.where)}</title>"
    return f"<g>{ring if point.is_chosen else ''}{shape}{title}</g>"


def _money(plan: Mapping[str, Any], cost: float) -> str:
    currency = (plan["cost"] or {}).get("currency", "")
    return f"{amount(cost)} {currency}".rstrip()
