"""Overhead against interval as an inline SVG: a curve, its uncertainty band and three marks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milepost.planner.interval import DEFAULT_INTERVAL_S
from milepost.planner.theory import exact_interval, exact_overhead
from milepost.planner.words import duration, percent

WIDTH, HEIGHT = 480.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 12.0, 12.0, 40.0
_POINTS = 96
_TICKS_S = (0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, 86400.0 * 4, 86400.0 * 40)
_ROOM = 2.4
"""The axis ends at so many times the overhead of optimum and choice."""

_BEYOND = 50.0
"""Curves go on so many times above the axis, where they are clipped."""

_CLIP = (
    f'<clipPath id="plot"><rect x="{_LEFT:g}" y="{_TOP:g}" '
    f'width="{WIDTH - _LEFT - _RIGHT:g}" height="{HEIGHT - _TOP - _BOTTOM:g}"/></clipPath>'
)


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
    svg: str
    marks: tuple[Mark, ...]
    has_band: bool


@dataclass(frozen=True, slots=True)
class _Axes:
    """Seconds (logarithmic) and overhead fraction (linear, cut at `top`) to drawing units."""

    first_s: float
    last_s: float
    top: float

    def x(self, seconds: float) -> float:
        share = math.log(seconds / self.first_s) / math.log(self.last_s / self.first_s)
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def y(self, overhead: float, limit: float = 1.0) -> float:
        share = min(max(overhead / self.top, 0.0), limit)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


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
    axes = _Axes(min(ends) / 8.0, max(ends) * 8.0, _ROOM * max(finite))
    has_band = known["mtbf_low_s"] is not None and known["mtbf_high_s"] is not None
    parts = [_CLIP, *_grid(axes)]
    if has_band:
        band = (_curve(known, known["mtbf_low_s"]), _curve(known, known["mtbf_high_s"]))
        parts.append(f'<path class="band" clip-path="url(#plot)" d="{_band(axes, *band)}"/>')
    parts.append(f'<path class="curve" clip-path="url(#plot)" d="{_path(_points(axes, curve))}"/>')
    parts += [_mark(axes, mark) for mark in reversed(marks)]
    label = f"Expected overhead against checkpoint interval; chosen {marks[0].text}"
    svg = (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )
    return Chart(svg, marks, has_band)


def _curve(known: Mapping[str, Any], mtbf_s: float) -> Callable[[float], float]:
    rest = (known["restore_s"], known["downtime_s"], known["durable_lag_s"])
    factor = 1.0 + float(known.get("extra_fraction", 0.0))

    def overhead(interval_s: float) -> float:
        plain = exact_overhead(interval_s, known["t_ckpt_s"], mtbf_s, *rest)
        return (1.0 + plain) * factor - 1.0

    return overhead


def _marks(plan: Mapping[str, Any], curve: Callable[[float], float]) -> tuple[Mark, ...]:
    best_s = exact_interval(plan["overhead"]["t_ckpt_s"], plan["overhead"]["mtbf_s"])
    named = (
        ("chosen", "chosen", plan["interval_s"]),
        ("best", "optimum", best_s),
        ("usual", "the 120 s default", DEFAULT_INTERVAL_S),
    )
    return tuple(Mark(kind, label, at, curve(at)) for kind, label, at in named)


def _points(axes: _Axes, curve: Callable[[float], float]) -> list[tuple[float, float]]:
    ratio = axes.last_s / axes.first_s
    seconds = [axes.first_s * ratio ** (i / (_POINTS - 1)) for i in range(_POINTS)]
    return [(axes.x(s), axes.y(curve(s), _BEYOND)) for s in seconds]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _band(axes: _Axes, low: Callable[[float], float], high: Callable[[float], float]) -> str:
    return _path([*_points(axes, low), *reversed(_points(axes, high))]) + "Z"


def _grid(axes: _Axes) -> list[str]:
    parts = []
    for value in _nice(axes.top):
        y = axes.y(value)
        parts.append(
            f'<path class="grid" d="M{_LEFT:g} {y:.1f}H{WIDTH - _RIGHT:g}"/>'
            f'<text class="end" x="{_LEFT - 6:g}" y="{y + 4:.1f}">{100 * value:.3g} %</text>'
        )
    base = HEIGHT - _BOTTOM
    for seconds in _TICKS_S:
        if axes.first_s <= seconds <= axes.last_s:
            x = axes.x(seconds)
            parts.append(
                f'<path class="tick" d="M{x:.1f} {base:g}v5"/>'
                f'<text class="mid" x="{x:.1f}" y="{base + 18:g}">{_short(seconds)}</text>'
            )
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(
        f'<text class="mid" x="{middle:g}" y="{HEIGHT - 4:g}">time between checkpoints</text>'
    )
    return parts


def _short(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def _nice(top: float) -> list[float]:
    """Zero and three to six round values up to `top`."""
    raw = top / 4.0
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * k for k in (1.0, 2.0, 5.0, 10.0) if size * k >= raw)
    return [i * step for i in range(int(top / step + 1e-9) + 1)]


_SHAPES = {
    "chosen": '<circle class="chosen" cx="{x:.1f}" cy="{y:.1f}" r="6"/>',
    "best": '<path class="best" d="M{x:.1f} {y:.1f}m0 -9l9 9l-9 9l-9 -9z"/>',
    "usual": '<path class="usual" d="M{x:.1f} {y:.1f}m-6 -6h12v12h-12z"/>',
}


def _mark(axes: _Axes, mark: Mark) -> str:
    title = f"{mark.label}: {mark.text}"
    shape = _SHAPES[mark.kind].format(x=axes.x(mark.interval_s), y=axes.y(mark.overhead))
    return f"<g>{shape}<title>{title}</title></g>"
