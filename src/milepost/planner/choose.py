"""Which profile and purchase mode a run uses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milepost.config.spec import RunSpec
from milepost.errors import ConfigError, Refused
from milepost.planner.assign import assign
from milepost.planner.forecast import Forecast, forecast
from milepost.planner.history import History
from milepost.planner.machine import Machine
from milepost.planner.measured import Measured
from milepost.planner.problem import Assignment, Group, Limits, Offer
from milepost.planner.profiles import Profiles, read_profiles
from milepost.planner.relax import find_relaxations
from milepost.planner.sharding import ShardPlan
from milepost.planner.theory import cost_total


@dataclass(frozen=True, slots=True)
class Placement:
    """So many shards on the machine of a forecast."""

    forecast: Forecast
    shards: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the shards run, the largest part first, and why."""

    placements: tuple[Placement, ...]
    mode_source: str
    currency: str = ""
    time_s: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def forecast(self) -> Forecast:
        return self.placements[0].forecast


def choose_machine(
    spec: RunSpec,
    measured: Measured,
    history: History,
    shards: ShardPlan,
    profiles: Mapping[str, Any] | None,
) -> Choice:
    """The cheapest (profile, mode) pairs in time; the soonest when only a budget is stated.

    This machine, cost n/a, when no profile applies or none has a price. Refused when deadline,
    budget, capacity or memory cannot be met; the message says which and the least change.
    """
    if profiles is None:
        return _here(spec, measured, history, shards, "no profiles are configured")
    found = read_profiles(profiles, spec.resources.gpus)
    if not found.machines:
        return _here(spec, measured, history, shards, "no profile is for this number of GPUs")
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
        return _here(spec, measured, history, shards, "no profile has a price", note)
    options = [forecast(spec, measured, history, one, shards.shard_s) for one in priced]
    return _optimise(spec, measured, shards, options, found, len(machines) - len(priced))


def _here(
    spec: RunSpec,
    measured: Measured,
    history: History,
    shards: ShardPlan,
    reason: str,
    *notes: str,
) -> Choice:
    mode, source = spec.planner.mode, "stated in the config (planner.mode)"
    if mode == "auto":
        mode, source = "on-demand", f"default: {reason}"
    here = forecast(spec, measured, history, Machine(mode=mode), shards.shard_s)
    if spec.planner.budget is not None or spec.planner.deadline_h is not None:
        notes = (*notes, f"deadline_h and budget were not checked: {reason}")
    return Choice((Placement(here, shards.shard_count),), source, notes=notes)


def _optimise(
    spec: RunSpec,
    measured: Measured,
    shards: ShardPlan,
    options: Sequence[Forecast],
    profiles: Profiles,
    unpriced: int,
) -> Choice:
    known = shards.shard_s is not None
    limits = _limits(spec) if known else Limits()
    group = _group(spec, measured, shards, options)
    offers = [Offer(o.machine.name, o.machine.places, o.machine.vram_gb) for o in options]
    soonest = limits.budget is not None and limits.deadline_s is None
    found = assign([group], offers, limits, soonest=soonest)
    if found is None:
        raise _refusal([group], offers, limits)
    notes = _notes(spec, known, unpriced, found)
    by_name = {option.machine.name: option for option in options}
    parts = [Placement(by_name[offer], count) for (_, offer), count in found.shares.items()]
    parts.sort(key=lambda part: (-part.shards, part.forecast.machine.name))
    source = (
        "chosen: " + ("soonest within the budget" if soonest else "least expected cost")
        if spec.planner.mode == "auto"
        else "stated in the config (planner.mode)"
    )
    time_s = found.time_s if known else None
    return Choice(tuple(parts), source, profiles.currency, time_s, notes)


def _limits(spec: RunSpec) -> Limits:
    hours = spec.planner.deadline_h
    return Limits(None if hours is None else hours * 3600.0, spec.planner.budget)


def _group(
    spec: RunSpec, measured: Measured, shards: ShardPlan, options: Sequence[Forecast]
) -> Group:
    """The run's shards; one useful second each when their length is not known."""
    seconds, cost = {}, {}
    for option in options:
        fraction = option.fraction or 0.0
        if not math.isfinite(fraction):
            continue
        useful_s = 1.0 / option.machine.speed if option.work_s is None else option.work_s
        name, price = option.machine.name, option.machine.price_per_h or 0.0
        seconds[name] = useful_s * (1.0 + fraction)
        cost[name] = cost_total(
            price,
            max(1, spec.resources.gpus),
            option.machine.utilisation,
            useful_s,
            useful_s * fraction,
        )
    return Group("shards", shards.shard_count, seconds, cost, _memory_gb(spec, measured))


def _memory_gb(spec: RunSpec, measured: Measured) -> float | None:
    """GB a GPU must hold at least: its part of a checkpoint. None when that is not known."""
    if spec.resources.gpus == 0 or measured.ckpt_bytes is None:
        return None
    return measured.ckpt_bytes / spec.resources.gpus / 1e9


def _notes(spec: RunSpec, known: bool, unpriced: int, found: Assignment) -> tuple[str, ...]:
    notes = []
    if unpriced:
        notes.append(f"{unpriced} offers without a price were left out")
    if not known and (spec.planner.deadline_h is not None or spec.planner.budget is not None):
        notes.append("deadline_h and budget were not checked: the seconds of a shard are not known")
    if len(found.shares) > 1:
        parts = "; ".join(f"{count} on {offer}" for (_, offer), count in found.shares.items())
        notes.append(f"no single offer suffices, the shards are shared out: {parts}")
    return tuple(notes)


def _refusal(groups: Sequence[Group], offers: Sequence[Offer], limits: Limits) -> Refused:
    found = find_relaxations(groups, offers, limits)
    wishes = []
    if limits.deadline_s is not None:
        wishes.append(f"deadline_h {limits.deadline_s / 3600.0:g}")
    if limits.budget is not None:
        wishes.append(f"budget {limits.budget:g}")
    wish = " and ".join(wishes) or "the run's memory and capacity"
    if not found:
        return Refused(f"no profile and mode can meet {wish}", where="planner")
    others = f" (or {'; or '.join(one.text for one in found[1:])})" if found[1:] else ""
    return Refused(
        f"no profile and mode can meet {wish}: {found[0].what} binds",
        where="planner",
        fix=f"the least change is {found[0].text}{others}",
    )
