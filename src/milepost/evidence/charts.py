"""The charts of the report as inline SVG; pure functions of numbers.

Every chart is stretched to the width of the page (its text stands beside it in HTML), so that a
phone shows it as well as a desk. Colours come from the classes of report.css.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from milepost.clock import epoch
from milepost.evidence.account import end_of, how, is_interrupted, lost_s
from milepost.evidence.types import AttemptEvidence, ShardEvidence
from milepost.evidence.words import duration

WIDTH = 1000
ROW_PX = 20
MOST_ROWS = 40
MOST_TICKS = 200
"""Checkpoints drawn in a row; of more, an even choice."""


@dataclass(frozen=True, slots=True)
class TimeLine:
    """Attempts of shards over time, in seconds since the epoch."""

    shards: tuple[ShardEvidence, ...]
    start_s: float
    end_s: float
    svg: str


def time_line(shards: Sequence[ShardEvidence]) -> TimeLine | None:
    """Draw the shards with attempts; of many those with most attempts. None when there is none."""
    tried = [s for s in shards if any(a.started for a in s.attempts)]
    if not tried:
        return None
    busy = sorted(tried, key=lambda s: -len(s.attempts))[:MOST_ROWS]
    chosen = {s.name for s in busy}
    drawn = tuple(s for s in tried if s.name in chosen)
    starts = [epoch(a.started) for s in drawn for a in s.attempts if a.started]
    ends = [epoch(end) for s in drawn for a in s.attempts if (end := end_of(a))]
    first, last = min(starts), max(*ends, min(starts) + 1.0)
    scale = WIDTH / (last - first)
    body = "".join(_row(s, n, first, scale) for n, s in enumerate(drawn))
    drawing = svg(body, ROW_PX * len(drawn), "attempts of the shards over time")
    return TimeLine(drawn, first, last, drawing)


def _row(shard: ShardEvidence, number: int, start: float, scale: float) -> str:
    top = number * ROW_PX
    lost = lost_s(shard)
    parts = [f'<rect class="row" x="0" y="{top + 9}" width="{WIDTH}" height="2"/>']
    for attempt in shard.attempts:
        parts += _attempt(attempt, lost.get(attempt.number, 0.0), top, start, scale)
    times = [c.time for c in shard.checkpoints]
    for time in times[:: max(1, len(times) // MOST_TICKS)]:
        x = (epoch(time) - start) * scale
        parts.append(_line("ckpt", x, top + 3))
    return "".join(parts)


def _attempt(
    attempt: AttemptEvidence, lost: float, top: int, start: float, scale: float
) -> list[str]:
    end = end_of(attempt)
    if attempt.started is None or end is None:
        return []
    x0, x1 = (epoch(attempt.started) - start) * scale, (epoch(end) - start) * scale
    told = (
        f"attempt {attempt.number}: {how(attempt)}, {duration(epoch(end) - epoch(attempt.started))}"
    )
    parts = [_rect("work", x0, x1 - x0, top, told)]
    if lost > 0:
        width = min(lost * scale, x1 - x0)
        parts.append(_rect("lost", x1 - width, width, top, f"{duration(lost)} done again"))
    if is_interrupted(attempt):
        parts.append(_line("cut", x1, top + 3))
    elif attempt.stop in ("failed", "error"):
        parts.append(_line("fail", x1, top + 3))
    return parts


def _rect(kind: str, x: float, width: float, top: int, told: str) -> str:
    """A bar with what is told when somebody points at it."""
    place = f'x="{x:.1f}" y="{top + 4}" width="{max(width, 1):.1f}" height="12"'
    return f'<rect class="{kind}" {place}><title>{escape(told)}</title></rect>'


def _line(kind: str, x: float, y: int, length: int = 14) -> str:
    x = min(max(x, 1), WIDTH - 1)
    return f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + length}"/>'


def strip(values: Sequence[float], best: float) -> str:
    """A line of marks, one for each value; the best one stands out."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    marks = [_mark("dot", (v - low) / span) for v in values if v != best]
    marks.append(_mark("dot win", (best - low) / span, wide=True))
    return svg("".join(marks), 44, "distribution of the results")


def pulls(distances: Sequence[float], sigmas: float) -> tuple[str, float]:
    """Signed distances in units of the error, the agreed band behind; returns the range too."""
    limit = max(sigmas * 1.25, *(abs(d) * 1.1 for d in distances))
    left, right = ((x / limit + 1) / 2 * WIDTH for x in (-sigmas, sigmas))
    body = f'<rect class="band" x="{left:.1f}" y="0" width="{right - left:.1f}" height="44"/>'
    body += f'<line class="rule" x1="{WIDTH / 2}" x2="{WIDTH / 2}" y1="0" y2="44"/>'
    for distance in distances:
        kind = "dot" if abs(distance) <= sigmas else "dot off"
        body += _mark(kind, (distance / limit + 1) / 2, wide=True)
    return svg(body, 44, "distances from the reference"), limit


def _mark(kind: str, share: float, *, wide: bool = False) -> str:
    width = 8 if wide else 4
    x = share * (WIDTH - width)
    return f'<rect class="{kind}" x="{x:.1f}" y="6" width="{width}" height="32" rx="2"/>'


def svg(body: str, height: int, label: str) -> str:
    """A drawing that is stretched to the width of its place."""
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {height}" height="{height}" '
        f'preserveAspectRatio="none">{body}</svg>'
    )
