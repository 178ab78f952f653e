"""Overhead against interval as an inline SVG: a curve, its uncertainty band and three marks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milepost.planner.axes import (
    BOTTOM,
    HEIGHT,
    Linear,
    LogSeconds,
    caption,
    heading,
    level,
    picture,
    place_x,
    place_y,
    short,
    upright,
)
from milepost.planner.interval import DEFAULT_INTERVAL_S
from milepost.planner.theory import exact_interval, exact_overhead
from milepost.planner.words import duration, percent

_POINTS = 96
_ROOM = 2.4
"""The axis ends at so many times the overhead of optimum and choice."""

_BEYOND = 50.0
"""Curves go on so many times above the axis, where they are clipped."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A named interval on the curve; `kind` is its shape and class in the drawing."""

    kind: str
    label: str
    interval_s: float
    overhead: float

    @property
    def text(self) -> str:
        return f"{duration(self.interval_s)}, {percent(self.overhead)}"


@dataclass(frozen=True, slots=True)
class Chart:
    """`best_s` is the optimum at both ends of the band, None without one."""

    svg: str
    marks: tuple[Mark, ...]
    best_s: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class _Plot:
    """Seconds (logarithmic) and overhead fraction (linear, cut at its end) to drawing units."""

    seconds: LogSeconds
    overhead: Linear

    def x(self, seconds: float) -> float:
        return place_x(self.seconds.share(seconds))

    def y(self, overhead: float, limit: float = 1.0) -> float:
        return place_y(min(max(self.overhead.share(overhead), 0.0), limit))


def draw(plan: Mapping[str, Any]) -> Chart | None:
    """The chart of a plan; None when no checkpoint was measured, so that there is no curve."""
    known = plan["overhead"]
    if not known["t_ckpt_s"] or not plan["interval_s"]:
        return None
    curve = _curve(known, known["mtbf_s"])
    marks = _marks(plan, curve)
    finite = [m.overhead for m in marks[:2] if math.isfinite(m.overhead)]
    if not finite or max(finite) <= 0.0:
        return None
    ends = [mark.interval_s for mark in marks]
    plot = _Plot(LogSeconds(min(ends) / 8.0, max(ends) * 8.0), Linear(0.0, _ROOM * max(finite)))
    low_s, high_s = known["mtbf_low_s"], known["mtbf_high_s"]
    parts = _grid(plot)
    best_s = None
    if low_s is not None and high_s is not None:
        band = (_curve(known, low_s), _curve(known, high_s))
        parts.append(
            f'<path class="band" clip-path="url(#overhead-plot)" d="{_band(plot, *band)}"/>'
        )
        best_s = (_best(known, low_s), _best(known, high_s))
    path = _path(_points(plot, curve))
    parts.append(f'<path class="curve" clip-path="url(#overhead-plot)" d="{path}"/>')
    parts += [_drop(plot, mark) for mark in marks]
    parts += [_mark(plot, mark) for mark in reversed(marks)]
    said = "; ".join(f"{mark.label}: {mark.text}" for mark in marks)
    title = "Expected overhead against checkpoint interval"
    return Chart(picture("overhead", title, said, parts), marks, best_s)


def _best(known: Mapping[str, Any], mtbf_s: float) -> float:
    return exact_interval(known["t_ckpt_s"], mtbf_s)


def _curve(known: Mapping[str, Any], mtbf_s: float) -> Callable[[float], float]:
    """The plan's overhead at other intervals; what does not hang on the interval is a factor."""
    rest = (known["restore_s"], known["downtime_s"], known["durable_lag_s"])
    factor = 1.0 + float(known.get("extra_fraction", 0.0))

    def overhead(interval_s: float) -> float:
        plain = exact_overhead(interval_s, known["t_ckpt_s"], mtbf_s, *rest)
        return (1.0 + plain) * factor - 1.0

    return overhead


def _marks(plan: Mapping[str, Any], curve: Callable[[float], float]) -> tuple[Mark, ...]:
    best_s = _best(plan["overhead"], plan["overhead"]["mtbf_s"])
    # of several places the curve is that of the first, and so is the mark on it
    chosen_s = next((one["interval_s"] for one in plan.get("placement") or ()), plan["interval_s"])
    named = (
        ("chosen", "chosen", chosen_s),
        ("best", "optimum", best_s),
        ("usual", "the 120 s default", DEFAULT_INTERVAL_S),
    )
    return tuple(Mark(kind, label, at, curve(at)) for kind, label, at in named)


def _points(plot: _Plot, curve: Callable[[float], float]) -> list[tuple[float, float]]:
    first_s, ratio = plot.seconds.first, plot.seconds.last / plot.seconds.first
    seconds = [first_s * ratio ** (i / (_POINTS - 1)) for i in range(_POINTS)]
    return [(plot.x(s), plot.y(curve(s), _BEYOND)) for s in seconds]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _band(plot: _Plot, low: Callable[[float], float], high: Callable[[float], float]) -> str:
    return _path([*_points(plot, low), *reversed(_points(plot, high))]) + "Z"


def _grid(plot: _Plot) -> list[str]:
    parts = [level(plot.y(value), f"{100 * value:.3g} %") for value in plot.overhead.ticks()]
    parts += [upright(plot.x(s), short(s)) for s in plot.seconds.ticks()]
    parts += [upright(plot.x(s), "", is_small=True) for s in plot.seconds.small_ticks()]
    return [*parts, heading("overhead"), caption("time between checkpoints (logarithmic)")]


_SHAPES = {
    "chosen": '<circle class="chosen" cx="{x:.1f}" cy="{y:.1f}" r="6"/>',
    "best": '<path class="best" d="M{x:.1f} {y:.1f}m0 -9l9 9l-9 9l-9 -9z"/>',
    "usual": '<path class="usual" d="M{x:.1f} {y:.1f}m-6 -6h12v12h-12z"/>',
}


def _drop(plot: _Plot, mark: Mark) -> str:
    """A thin line from a mark down to its interval on the axis."""
    at = (plot.x(mark.interval_s), plot.y(mark.overhead))
    return f'<path class="drop {mark.kind}" d="M{at[0]:.1f} {at[1]:.1f}V{HEIGHT - BOTTOM:g}"/>'


def _mark(plot: _Plot, mark: Mark) -> str:
    shape = _SHAPES[mark.kind].format(x=plot.x(mark.interval_s), y=plot.y(mark.overhead))
    return f"<g>{shape}<title>{mark.label}: {mark.text}</title></g>"
