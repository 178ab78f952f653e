"""Why no assignment is possible, and the least change of each wish that makes one possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from milepost.planner.assign import assign, is_possible
from milepost.planner.model import Model
from milepost.planner.problem import Group, Limits, Offer, fits, has_place_for_all
from milepost.planner.solver import Effort


@dataclass(frozen=True, slots=True)
class Relaxation:
    """`what` binds; `text` says the least value that works, rounded so that it does.

    `what` is one of deadline, budget, storage, memory, walltime, capacity, or several of the
    first three that only give way together. `least` are the exact values by what is to be
    changed: seconds, money, GB, GB, seconds, GPUs (of a pool). `relative` is the change as a
    share of the wish, for comparing.
    """

    what: str
    text: str
    relative: float
    least: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Wish:
    """A limit of the whole run: its field, how people write it, from model to wish units."""

    what: str
    field: str
    key: str
    unit: float = 1.0


_WISHES = (
    _Wish("deadline", "deadline_s", "deadline_h", 3600.0),
    _Wish("budget", "budget", "budget"),
    _Wish("storage", "storage_gb", "storage.capacity_gb"),
)


def find_relaxations(
    groups: Sequence[Group], offers: Sequence[Offer], limits: Limits
) -> list[Relaxation]:
    """Single changes that make the infeasible problem feasible, the smallest first.

    When no single one does, those that the least sum of relative changes needs together.
    """
    found = [one for wish in _WISHES if (one := _wish(wish, groups, offers, limits))]
    found += _memory(groups, offers, limits)
    found += _walltime(groups, offers, limits)
    found += _capacity(groups, offers, limits)
    return sorted(found or _together(groups, offers, limits), key=lambda one: one.relative)


def _wish(
    wish: _Wish, groups: Sequence[Group], offers: Sequence[Offer], limits: Limits
) -> Relaxation | None:
    """The least value of one limit, the others as they are."""
    limit = getattr(limits, wish.field)
    if limit is None:
        return None
    least = _least(wish, groups, offers, replace(limits, **{wish.field: None}))
    if least is None or least <= limit:
        return None
    text = f"{wish.key}: {_up(least / wish.unit)}"
    return Relaxation(wish.what, text, _share(least, limit), {wish.field: least})


def _least(
    wish: _Wish, groups: Sequence[Group], offers: Sequence[Offer], limits: Limits
) -> float | None:
    if wish.what == "storage":
        return _least_storage(groups, offers, limits)
    found = assign(groups, offers, limits, soonest=wish.what == "deadline")
    if found is None:
        return None
    return found.time_s if wish.what == "deadline" else found.cost


def _least_storage(
    groups: Sequence[Group], offers: Sequence[Offer], limits: Limits
) -> float | None:
    if not has_place_for_all(groups, offers):
        return None
    model = Model(groups, offers, limits, in_rounds=True)
    found = model.minimise(model.stored, _EFFORT)
    return None if found.value is None else model.read(found.solver).stored_gb


_EFFORT = Effort(gap=0.0, time_limit_s=5.0)


def _memory(groups: Sequence[Group], offers: Sequence[Offer], limits: Limits) -> list[Relaxation]:
    """The most that a GPU may be asked for, where shards need more than some GPUs have."""
    need = max((group.vram_gb or 0.0 for group in groups), default=0.0)
    sizes = sorted({o.vram_gb for o in offers if o.vram_gb and o.vram_gb < need}, reverse=True)
    for size in sizes:
        smaller = [replace(g, vram_gb=min(g.vram_gb or 0.0, size)) for g in groups]
        if is_possible(smaller, offers, limits, rough=True):
            text = f"a GPU needs {need:.3g} GB and may need {size:.3g} GB"
            return [Relaxation("memory", text, need / size - 1.0, {"vram_gb": size})]
    return []


def _walltime(groups: Sequence[Group], offers: Sequence[Offer], limits: Limits) -> list[Relaxation]:
    """The offer whose longest allocation needs the smallest growth."""
    found = []
    for index, offer in enumerate(offers):
        if offer.walltime_s is None:
            continue
        needed = sorted({g.least_s[offer.name] for g in groups if offer.name in g.least_s})
        for walltime_s in (one for one in needed if one > offer.walltime_s):
            longer = _with(offers, index, walltime_s=walltime_s)
            if is_possible(groups, longer, limits, rough=True):
                text = f"walltime_max_h: {_up(walltime_s / 3600.0)} for {offer.name}"
                share = _share(walltime_s, offer.walltime_s)
                found.append(Relaxation("walltime", text, share, {offer.name: walltime_s}))
                break
    return sorted(found, key=lambda one: one.relative)[:1]


def _capacity(groups: Sequence[Group], offers: Sequence[Offer], limits: Limits) -> list[Relaxation]:
    """The pool of GPUs that needs the smallest growth, found by bisection."""
    total = sum(group.count for group in groups)
    found = []
    for pool in dict.fromkeys(o.pool or o.name for o in offers if o.places is not None):
        members = [o for o in offers if (o.pool or o.name) == pool]
        now = max((o.places or 0) * o.gpus_a_place for o in members)
        most = max(total * o.gpus_a_place for o in members)
        unit = min(o.gpus_a_place for o in members)
        steps = [now + unit * (k + 1) for k in range(math.ceil((most - now) / unit - 1e-9))]
        works = _works(groups, offers, limits, pool)
        if not steps or not works(steps[-1]):
            continue
        least = _first(steps, works)
        text = f"{members[0].capacity_key}: {math.ceil(least - 1e-9)} for {pool}"
        share = _share(least, now) if now else math.inf
        found.append(Relaxation("capacity", text, share, {pool: least}))
    return sorted(found, key=lambda one: one.relative)[:1]


def _works(
    groups: Sequence[Group], offers: Sequence[Offer], limits: Limits, pool: str
) -> Callable[[float], bool]:
    def works(gpus: float) -> bool:
        changed = [
            replace(o, places=int(gpus / o.gpus_a_place + 1e-9))
            if (o.pool or o.name) == pool and o.places is not None
            else o
            for o in offers
        ]
        return is_possible(groups, changed, limits, rough=True)

    return works


def _first(steps: Sequence[float], works: Callable[[float], bool]) -> float:
    """The first step that works; those after it do, too."""
    low, high = -1, len(steps) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(steps[middle]) else (middle, high)
    return steps[high]


def _together(groups: Sequence[Group], offers: Sequence[Offer], limits: Limits) -> list[Relaxation]:
    """No single change helps: deadline, budget and storage with the least sum of changes."""
    if not has_place_for_all(groups, offers):
        return _no_place(groups, offers)
    model = Model(groups, offers, Limits(), in_rounds=True)
    parts = list(_elastic(model, limits))
    if not parts:
        return []
    model.minimise(sum(slack for _, _, slack in parts), _EFFORT)
    found = model.read("")
    reached = {"deadline_s": found.time_s, "budget": found.cost, "storage_gb": found.stored_gb}
    over = [w for w, limit, _ in parts if reached[w.field] > limit * (1.0 + 1e-9)]
    text = " together with ".join(f"{w.key}: {_up(reached[w.field] / w.unit)}" for w in over)
    shares = [_share(reached[w.field], getattr(limits, w.field)) for w in over]
    least = {w.field: reached[w.field] for w in over}
    return [Relaxation(" and ".join(w.what for w in over), text, sum(shares), least)]


def _elastic(model: Model, limits: Limits) -> Iterator[tuple[_Wish, float, object]]:
    """Each limit with a variable for how far it is exceeded, as a share of it."""
    import pulp

    sides = {"deadline": (model.time, model.second), "budget": (model.cost, model.coin)}
    sides["storage"] = (model.stored, model.gb)
    for wish in _WISHES:
        limit = getattr(limits, wish.field)
        if limit is not None:
            value, unit = sides[wish.what]
            slack = pulp.LpVariable(f"over_{wish.what}", lowBound=0)
            model.problem += value <= limit / unit * (1 + slack)
            yield wish, limit, slack


def _no_place(groups: Sequence[Group], offers: Sequence[Offer]) -> list[Relaxation]:
    """Some shards have no offer at all, whatever the wishes: say what every offer lacks."""
    for group in groups:
        if any(fits(group, offer) for offer in offers):
            continue
        need = group.vram_gb or 0.0
        largest = max((offer.vram_gb or 0.0 for offer in offers), default=0.0)
        if largest < need:
            text = f"a GPU needs {need:.3g} GB and the largest profile has {largest:.3g} GB"
            return [Relaxation("memory", text, need / largest - 1.0 if largest else math.inf, {})]
        if not group.seconds:
            return [Relaxation("failures", "no offer's failures leave time to finish", 0.0, {})]
    return [
        Relaxation(
            "capacity", f"no profile has a free place: raise {offers[0].capacity_key}", 1.0, {}
        )
    ]


def _with(offers: Sequence[Offer], index: int, **changes: float) -> list[Offer]:
    changed = replace(offers[index], **changes)  # type: ignore[arg-type]
    return [*offers[:index], changed, *offers[index + 1 :]]


def _share(least: float, limit: float) -> float:
    return least / limit - 1.0 if limit > 0 else math.inf


def _up(value: float) -> str:
    """Three significant digits, rounded up, so that the printed value works."""
    if value <= 0.0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / step - 1e-9) * step:.6g}"
