"""Which profile and purchase mode a run uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milepost.config.spec import RunSpec
from milepost.errors import ConfigError, Refused
from milepost.planner.assign import assign
from milepost.planner.forecast import Forecast, forecast
from milepost.planner.frontier import frontier
from milepost.planner.history import History
from milepost.planner.machine import Machine
from milepost.planner.measured import Measured
from milepost.planner.offers import Load, class_name, groups_of, limits_of, offer_of, overhead_of
from milepost.planner.problem import Assignment, Group, Limits, Offer
from milepost.planner.profiles import Profiles, read_profiles
from milepost.planner.relax import find_relaxations
from milepost.planner.storage import Storage, storage_of


@dataclass(frozen=True, slots=True)
class Placement:
    """Shards on the machine of a forecast: how many of each class (by position).

    `useful_s`, `startup_s`, `lost_s` and `storage_cost` are sums over them; None where not known.
    """

    forecast: Forecast
    classes: tuple[tuple[int, int], ...]
    useful_s: float | None
    startup_s: float | None
    lost_s: float | None
    storage_cost: float | None

    @property
    def shards(self) -> int:
        return sum(count for _, count in self.classes)


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the shards run, the largest part first, and why.

    `found` is the solver's answer, None without a choice; `frontier` the answers for other
    deadlines.
    """

    placements: tuple[Placement, ...]
    mode_source: str
    storage: Storage
    currency: str = ""
    found: Assignment | None = None
    time_s: float | None = None
    frontier: tuple[Assignment, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def forecast(self) -> Forecast:
        return self.placements[0].forecast


@dataclass(frozen=True, slots=True)
class _Inputs:
    spec: RunSpec
    measured: Measured
    history: History
    load: Load

    def forecast(self, machine: Machine) -> Forecast:
        return forecast(self.spec, self.measured, self.history, machine, self.load.longest_s)


def choose_machine(
    spec: RunSpec,
    measured: Measured,
    history: History,
    load: Load,
    profiles: Mapping[str, Any] | None,
) -> Choice:
    """The cheapest (profile, mode) pairs in time; the soonest when only a budget is stated.

    This machine, cost n/a, when no profile applies or none has a price. Refused when deadline,
    budget, storage, capacity, memory or walltime cannot be met; the message says which bind and
    the least change of each.
    """
    given = _Inputs(spec, measured, history, load)
    if profiles is None:
        return _here(given, None, "no profiles are configured")
    found = read_profiles(profiles, spec.resources.gpus)
    if not found.machines:
        return _here(given, found, "no profile is for this number of GPUs")
    machines = [m for m in found.machines if spec.planner.mode in ("auto", m.mode)]
    if not machines:
        raise ConfigError(
            f"no profile offers mode {spec.planner.mode}",
            where="planner.mode",
            fix="add the mode to a profile, or use auto",
        )
    priced = [machine for machine in machines if machine.price_per_h is not None]
    if not priced:
        note = "no profile has a price: fill in price_per_h to have a profile chosen"
        return _here(given, found, "no profile has a price", note)
    return _optimise(given, [given.forecast(m) for m in priced], found, len(machines) - len(priced))


def _here(given: _Inputs, profiles: Profiles | None, reason: str, *notes: str) -> Choice:
    planner = given.spec.planner
    mode, source = planner.mode, "stated in the config (planner.mode)"
    if mode == "auto":
        mode, source = "on-demand", f"default: {reason}"
    if planner.budget is not None or planner.deadline_h is not None:
        notes = (*notes, f"deadline_h and budget were not checked: {reason}")
    storage = _storage(given, profiles)
    classes = tuple((at, one.count) for at, one in enumerate(given.load.classes))
    here = _placement(given, given.forecast(Machine(mode=mode)), classes, storage)
    return Choice((here,), source, storage, notes=notes)


def _storage(given: _Inputs, profiles: Profiles | None) -> Storage:
    price = None if profiles is None else profiles.storage_price
    capacity = None if profiles is None else profiles.storage_gb
    return storage_of(given.spec, given.measured, price, capacity)


def _optimise(
    given: _Inputs, options: Sequence[Forecast], profiles: Profiles, unpriced: int
) -> Choice:
    spec, storage = given.spec, _storage(given, profiles)
    known = given.load.longest_s is not None
    limits = limits_of(spec, storage) if known else Limits()
    groups = groups_of(spec, given.measured, given.load, options, storage)
    offers = [offer_of(spec, option) for option in options]
    soonest = limits.budget is not None and limits.deadline_s is None
    found = assign(groups, offers, limits, soonest=soonest)
    if found is None:
        raise _refusal(groups, offers, limits)
    source = (
        "chosen: " + ("soonest within the budget" if soonest else "least expected cost")
        if spec.planner.mode == "auto"
        else "stated in the config (planner.mode)"
    )
    placements = _placements(given, options, found, storage)
    is_whole = known and all(part.lost_s is not None for part in placements)
    return Choice(
        placements,
        source,
        storage,
        profiles.currency,
        found,
        found.time_s if is_whole else None,
        tuple(frontier(groups, offers, limits, found)) if is_whole else (),
        _notes(spec, known, unpriced, placements),
    )


def _placements(
    given: _Inputs, options: Sequence[Forecast], found: Assignment, storage: Storage
) -> tuple[Placement, ...]:
    """One for each machine that is used, the one with the most shards first."""
    parts = []
    for option in options:
        counts = [
            (position, found.shares.get((class_name(position), option.machine.name), 0))
            for position in range(len(given.load.classes))
        ]
        classes = tuple((position, count) for position, count in counts if count)
        if classes:
            parts.append(_placement(given, option, classes, storage))
    return tuple(sorted(parts, key=lambda part: (-part.shards, part.forecast.machine.name)))


def _placement(
    given: _Inputs, option: Forecast, classes: tuple[tuple[int, int], ...], storage: Storage
) -> Placement:
    if given.load.longest_s is None:
        return Placement(option, classes, None, None, None, None)
    useful_s = 0.0
    lost_s: float | None = None if option.fraction is None else 0.0
    cost: float | None = 0.0
    for position, count in classes:
        each_s = given.load.seconds(position) / option.machine.speed
        lost = overhead_of(given.spec, given.measured, option, each_s)
        held = storage.cost(option, each_s)
        useful_s += count * each_s
        lost_s = None if lost_s is None or lost is None else lost_s + count * lost
        cost = None if cost is None or held is None else cost + count * held
    startup_s = (given.measured.startup_s or 0.0) * sum(count for _, count in classes)
    return Placement(option, classes, useful_s, startup_s, lost_s, cost)


def _notes(
    spec: RunSpec, known: bool, unpriced: int, parts: Sequence[Placement]
) -> tuple[str, ...]:
    notes = []
    if unpriced:
        notes.append(f"{unpriced} offers without a price were left out")
    if not known and (spec.planner.deadline_h is not None or spec.planner.budget is not None):
        notes.append("deadline_h and budget were not checked: the seconds of a shard are not known")
    elif known and any(part.lost_s is None for part in parts):
        notes.append(
            "no checkpoint was measured: profiles were compared, and deadline_h and budget checked, "
            "by useful time alone; time and cost with overhead are not known"
        )
    elif spec.planner.budget is not None and any(part.storage_cost is None for part in parts):
        notes.append("the budget was checked without storage, whose cost is not known")
    if len(parts) > 1:
        said = "; ".join(f"{part.shards} on {part.forecast.machine.name}" for part in parts)
        notes.append(f"no single offer is as good, the shards are shared out: {said}")
    return tuple(notes)


def _refusal(groups: Sequence[Group], offers: Sequence[Offer], limits: Limits) -> Refused:
    found = find_relaxations(groups, offers, limits)
    wishes = []
    if limits.deadline_s is not None:
        wishes.append(f"deadline_h {limits.deadline_s / 3600.0:g}")
    if limits.budget is not None:
        wishes.append(f"budget {limits.budget:g}")
    if limits.storage_gb is not None:
        wishes.append(f"storage.capacity_gb {limits.storage_gb:g}")
    wish = " and ".join(wishes) or "the run's memory, walltime and capacity"
    if not found:
        return Refused(f"no profile and mode can meet {wish}", where="planner")
    binding = " and ".join(dict.fromkeys(one.what for one in found))
    verb = "bind" if " and " in binding else "binds"
    others = f" (or {'; or '.join(one.text for one in found[1:])})" if found[1:] else ""
    return Refused(
        f"no profile and mode can meet {wish}: {binding} {verb}",
        where="planner",
        fix=f"the least change is {found[0].text}{others}",
    )
