"""Why no assignment is possible, and the least change of one wish that makes one possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from milepost.planner.assign import Group, Limits, Offer, assign, fits


@dataclass(frozen=True, slots=True)
class Relaxation:
    """`what` binds (memory, capacity, deadline, budget); `text` says the least value that works.

    `relative` is the change as a share of the wish, for comparing.
    """

    what: str
    text: str
    relative: float


def find_relaxations(
    groups: Sequence[Group], offers: Sequence[Offer], limits: Limits
) -> list[Relaxation]:
    """Single changes that make the infeasible problem feasible, the smallest first.

    When no single one does, deadline and budget are given together.
    """
    memory = [one for group in groups if (one := _memory(group, offers))]
    if memory:
        return memory
    found = [*_deadline(groups, offers, limits), *_budget(groups, offers, limits)]
    found += _capacity(groups, offers, limits)
    return sorted(found or _both(groups, offers, limits), key=lambda one: one.relative)


def _memory(group: Group, offers: Sequence[Offer]) -> Relaxation | None:
    if any(fits(group, offer) for offer in offers):
        return None
    need = group.vram_gb or 0.0
    largest = max((offer.vram_gb or 0.0 for offer in offers), default=0.0)
    if largest >= need:
        return Relaxation("capacity", "no profile has a free place: raise gpus_max", 1.0)
    text = f"a GPU needs {need:.3g} GB and the largest profile has {largest:.3g} GB"
    return Relaxation("memory", text, (need - largest) / need)


def _deadline(groups: Sequence[Group], offers: Sequence[Offer], limits: Limits) -> list[Relaxation]:
    if limits.deadline_s is None:
        return []
    found = assign(groups, offers, replace(limits, deadline_s=None), soonest=True)
    if found is None:
        return []
    text = f"deadline_h: {_up(found.time_s / 3600.0)}"
    return [Relaxation("deadline", text, found.time_s / limits.deadline_s - 1.0)]


def _budget(groups: Sequence[Group], offers: Sequence[Offer], limits: Limits) -> list[Relaxation]:
    if limits.budget is None:
        return []
    found = assign(groups, offers, replace(limits, budget=None))
    if found is None:
        return []
    relative = found.cost / limits.budget - 1.0 if limits.budget > 0 else float("inf")
    return [Relaxation("budget", f"budget: {_up(found.cost)}", relative)]


def _capacity(groups: Sequence[Group], offers: Sequence[Offer], limits: Limits) -> list[Relaxation]:
    """The offer for which the fewest more places help, found by bisection."""
    total = sum(group.count for group in groups)
    best: tuple[float, str] | None = None
    for index, offer in enumerate(offers):
        if offer.places is None or offer.places >= total:
            continue

        def works(places: int, index: int = index) -> bool:
            changed = [*offers[:index], replace(offers[index], places=places), *offers[index + 1 :]]
            return assign(groups, changed, limits) is not None

        if not works(total):
            continue
        low, high = offer.places, total
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if works(middle) else (middle, high)
        change = (high - offer.places) / max(1, offer.places)
        best = min(best or (float("inf"), ""), (change, f"{high} places for {offer.name}"))
    return [] if best is None else [Relaxation("capacity", best[1], best[0])]


def _both(groups: Sequence[Group], offers: Sequence[Offer], limits: Limits) -> list[Relaxation]:
    """Neither alone helps: the cheapest assignment with the time that it takes."""
    found = assign(groups, offers, Limits())
    if found is None:
        return []
    text = f"deadline_h: {_up(found.time_s / 3600.0)} together with budget: {_up(found.cost)}"
    return [Relaxation("deadline and budget", text, 0.0)]


def _up(value: float) -> str:
    """Three significant digits, rounded up, so that the printed value works."""
    from math import ceil, floor, log10

    if value <= 0.0:
        return "0"
    step = 10.0 ** (floor(log10(value)) - 2)
    return f"{ceil(value / step - 1e-9) * step:.6g}"
