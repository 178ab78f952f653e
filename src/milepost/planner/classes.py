"""Shards of many sizes as few classes of nearly equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_CLASSES = 40
"""More classes make the choice slow; with these, sizes within a factor of 50 err by about 5 %."""

_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class SizeClass:
    """`count` shards between `least` and `most` in size; `size` is their mean, so that the work
    of all of them together is exact."""

    size: float
    count: int
    least: float
    most: float

    @property
    def error(self) -> float:
        """By how much one of its shards differs from the class at most, as a share of it."""
        return max(self.most / self.size - 1.0, 1.0 - self.least / self.size)


def classify(sizes: Sequence[float], most: int = MOST_CLASSES) -> list[SizeClass]:
    """Classes of the sizes (all above 0), the smallest first: one for each size that occurs,
    or, where those are more than `most`, the division with the smallest ratio within a class."""
    ordered = sorted(sizes)
    if not ordered:
        return []
    ratio = 1.0 + _EQUAL
    if len(_cut(ordered, ratio)) > most:
        ratio = _least_ratio(ordered, most)
    bounds = _cut(ordered, ratio)
    parts = [ordered[a:b] for a, b in zip(bounds, [*bounds[1:], len(ordered)], strict=True)]
    return [SizeClass(sum(part) / len(part), len(part), part[0], part[-1]) for part in parts]


def class_of(classes: Sequence[SizeClass], size: float) -> int:
    """Position of the class that a size belongs to, or of the nearest one."""

    def distance(position: int) -> float:
        one = classes[position]
        return max(one.least - size, size - one.most, 0.0)

    return min(range(len(classes)), key=distance)


def worst_error(classes: Sequence[SizeClass]) -> float:
    return max((one.error for one in classes), default=0.0)


def _cut(ordered: Sequence[float], ratio: float) -> list[int]:
    """Where classes begin when each goes as far as `ratio` allows: the fewest that are possible."""
    begins, limit = [0], ordered[0] * ratio
    for position, size in enumerate(ordered):
        if size > limit:
            begins.append(position)
            limit = size * ratio
    return begins


def _least_ratio(ordered: Sequence[float], most: int) -> float:
    """The smallest ratio that needs at most `most` classes, to a hundredth of a per cent."""
    low, high = 1.0, ordered[-1] / ordered[0] * (1.0 + _EQUAL)  # the quotient may be rounded down
    while high - low > 1e-4 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if len(_cut(ordered, middle)) <= most else (middle, high)
    return high
