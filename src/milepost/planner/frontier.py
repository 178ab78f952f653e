"""Cost against deadline: the cheapest assignment for each deadline between soonest and cheapest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from milepost.planner.assign import assign
from milepost.planner.problem import Assignment, Group, Limits, Offer

POINTS = 12
"""Deadlines that are tried between the soonest and the cheapest."""


def frontier(
    groups: Sequence[Group],
    offers: Sequence[Offer],
    limits: Limits,
    chosen: Assignment | None = None,
    points: int = POINTS,
) -> list[Assignment]:
    """Assignments of which none is both cheaper and sooner than another, the soonest first.

    Deadline and budget are left aside, the other limits hold. `chosen` is among them unless
    another one is better; empty when nothing fits.
    """
    free = replace(limits, deadline_s=None, budget=None)
    soonest = assign(groups, offers, free, soonest=True, thorough=False)
    cheapest = assign(groups, offers, free, thorough=False)
    if soonest is None or cheapest is None:
        return []
    found = [soonest, cheapest, *([] if chosen is None else [chosen])]
    ratio = cheapest.time_s / soonest.time_s if soonest.time_s > 0.0 else 1.0
    if ratio > 1.0 + 1e-9:
        for step in range(1, points):
            deadline_s = soonest.time_s * ratio ** (step / points)
            limited = replace(free, deadline_s=deadline_s)
            one = assign(groups, offers, limited, thorough=False)
            found += [] if one is None else [one]
    return _best(found)


def _best(found: Iterable[Assignment]) -> list[Assignment]:
    """Without those that another one beats in one way and equals in the other."""
    kept: list[Assignment] = []
    for one in sorted(found, key=lambda one: (one.time_s, one.cost)):
        if not kept or one.cost < kept[-1].cost * (1.0 - 1e-9):
            kept.append(one)
    return kept
