"""Many shards over time in one chart: how many were at work, and when what happened to them.

Time is cut into equal steps; the height of a step is the mean number of attempts at work in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from milepost.clock import epoch
from milepost.evidence.account import end_of, is_interrupted, lost_s
from milepost.evidence.charts import WIDTH, svg
from milepost.evidence.types import ShardEvidence

STEPS = 200
AREA_PX, STRIP_PX, GAP_PX = 120, 10, 4
STRIPS = (("cut", "interrupted"), ("fail", "failed"), ("ckpt", "checkpoints"))


@dataclass(frozen=True, slots=True)
class Activity:
    """`most` is the highest mean number at work, `strips` the names below the area."""

    start_s: float
    end_s: float
    most: float
    strips: tuple[str, ...]
    svg: str


def activity(shards: Sequence[ShardEvidence]) -> Activity | None:
    """None when no attempt has a time."""
    spans = list(_spans(shards))
    if not spans:
        return None
    first = min(start for start, _, _ in spans)
    last = max(first + 1.0, *(end for _, end, _ in spans))
    clock = _Steps(first, last)
    work, lost = [0.0] * STEPS, [0.0] * STEPS
    for start, end, lost_from in spans:
        clock.add(work, start, end)
        clock.add(lost, lost_from, end)
    most = max(work)
    parts = [_area("work", work, most), _area("lost", lost, most)]
    marks = _marks(shards, clock)
    shown = [(kind, name) for kind, name in STRIPS if any(marks[kind])]
    for row, (kind, _) in enumerate(shown):
        parts.append(_strip(kind, marks[kind], AREA_PX + GAP_PX + row * (STRIP_PX + GAP_PX)))
    height = AREA_PX + GAP_PX + len(shown) * (STRIP_PX + GAP_PX)
    label = "shards at work over time"
    return Activity(
        first, last, most, tuple(n for _, n in shown), svg("".join(parts), height, label)
    )


class _Steps:
    def __init__(self, first: float, last: float) -> None:
        self.first, self.width = first, (last - first) / STEPS

    def at(self, moment: float) -> int:
        return min(STEPS - 1, max(0, int((moment - self.first) / self.width)))

    def add(self, steps: list[float], start: float, end: float) -> None:
        """Add a span to the means of the steps that it touches."""
        for step in range(self.at(start), self.at(end) + 1):
            left = self.first + step * self.width
            inside = min(end, left + self.width) - max(start, left)
            steps[step] += max(0.0, inside) / self.width


def _spans(shards: Iterable[ShardEvidence]) -> Iterable[tuple[float, float, float]]:
    """Start, end, and from when on it was for nothing, of every attempt."""
    for shard in shards:
        lost = lost_s(shard)
        for attempt in shard.attempts:
            end = end_of(attempt)
            if attempt.started is not None and end is not None:
                start, stop = epoch(attempt.started), epoch(end)
                yield start, stop, max(start, stop - lost.get(attempt.number, 0.0))


def _marks(shards: Iterable[ShardEvidence], clock: _Steps) -> dict[str, list[int]]:
    marks = {kind: [0] * STEPS for kind, _ in STRIPS}
    for shard in shards:
        for attempt in shard.attempts:
            end = end_of(attempt)
            if end is not None and is_interrupted(attempt):
                marks["cut"][clock.at(epoch(end))] += 1
            elif end is not None and attempt.stop in ("failed", "error"):
                marks["fail"][clock.at(epoch(end))] += 1
        for checkpoint in shard.checkpoints:
            marks["ckpt"][clock.at(epoch(checkpoint.time))] += 1
    return marks


def _area(kind: str, steps: Sequence[float], most: float) -> str:
    if not any(steps):
        return ""
    width = WIDTH / STEPS
    tops = [AREA_PX * (1 - value / most) for value in steps]
    path = "".join(f"V{top:.1f}H{(n + 1) * width:g}" for n, top in enumerate(tops))
    return f'<path class="{kind}" d="M0 {AREA_PX}{path}V{AREA_PX}Z"/>'


def _strip(kind: str, counts: Sequence[int], top: int) -> str:
    """The more in a step, the darker."""
    width, most = WIDTH / STEPS, max(counts)
    return f'<rect class="row" x="0" y="{top}" width="{WIDTH}" height="{STRIP_PX}"/>' + "".join(
        f'<rect class="many-{kind}" x="{n * width:g}" y="{top}" width="{width:g}" '
        f'height="{STRIP_PX}" opacity="{0.35 + 0.65 * count / most:.2f}"/>'
        for n, count in enumerate(counts)
        if count
    )
