"""From forecasts to the question of the choice: offers, and groups of equal shards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from milepost.config.spec import RunSpec
from milepost.model import WorkKind
from milepost.planner.classes import SizeClass
from milepost.planner.forecast import Forecast, longest_allocation
from milepost.planner.measured import Measured
from milepost.planner.problem import Group, Limits, Offer
from milepost.planner.profiles import capacity_key
from milepost.planner.storage import Storage
from milepost.planner.theory import cost_total
from milepost.planner.walltime import end_margin, reservations


@dataclass(frozen=True, slots=True)
class Load:
    """The shards of a run: classes of their sizes, and the useful seconds of the largest size
    (None: not known) on the machine of the smoke test."""

    classes: tuple[SizeClass, ...]
    longest_s: float | None

    @property
    def count(self) -> int:
        return sum(one.count for one in self.classes)

    def seconds(self, position: int) -> float:
        """Useful seconds of a shard of a class; one for the largest where they are not known."""
        longest_s = 1.0 if self.longest_s is None else self.longest_s
        return longest_s * self.classes[position].size / self.classes[-1].most


def offer_of(spec: RunSpec, found: Forecast) -> Offer:
    """The place that a forecast is about."""
    machine = found.machine
    return Offer(
        machine.name,
        machine.places,
        machine.vram_gb,
        machine.walltime_s,
        machine.pool,
        machine.gpus_a_place,
        capacity_key(spec.resources.gpus),
    )


def groups_of(
    spec: RunSpec,
    measured: Measured,
    load: Load,
    options: Sequence[Forecast],
    storage: Storage,
) -> list[Group]:
    """One group for each class of sizes, with what a shard of it takes on each machine."""
    groups = []
    for position, size_class in enumerate(load.classes):
        seconds, cost, least, stored = {}, {}, {}, {}
        for option in options:
            useful_s = load.seconds(position) / option.machine.speed
            lost_s = overhead_of(spec, measured, option, useful_s)
            if lost_s is None:
                continue
            name = option.machine.name
            paid_s = useful_s + (measured.startup_s or 0.0)
            seconds[name] = paid_s + lost_s
            least[name] = shortest_allocation(spec, measured, option)
            stored[name] = storage.stored_gb(option, useful_s)
            cost[name] = running_cost(spec, option, paid_s, lost_s)
            cost[name] += storage.cost(option, useful_s) or 0.0
        name = class_name(position)
        need = memory_gb(spec, measured)
        groups.append(Group(name, size_class.count, seconds, cost, need, least, stored))
    return groups


def class_name(position: int) -> str:
    return f"class {position}"


def limits_of(spec: RunSpec, storage: Storage) -> Limits:
    hours = spec.planner.deadline_h
    seconds = None if hours is None else hours * 3600.0
    return Limits(seconds, spec.planner.budget, storage.capacity_gb)


def running_cost(spec: RunSpec, option: Forecast, paid_s: float, lost_s: float) -> float:
    """Compute and overhead of one shard, without storage; 0 only where the price is."""
    machine = option.machine
    units = max(1, spec.resources.gpus)
    return cost_total(machine.price_per_h or 0.0, units, machine.utilisation, paid_s, lost_s)


def overhead_of(
    spec: RunSpec, measured: Measured, option: Forecast, useful_s: float
) -> float | None:
    """Expected seconds beside useful ones: checkpoints, failures, and the starts of further
    allocations where one does not hold the shard; None where failures leave no time to finish.

    For work with checkpoints the forecast's fraction counts the ends of allocations already.
    """
    fraction = option.fraction or 0.0
    if not math.isfinite(fraction):
        return None
    is_counted = spec.work.kind is WorkKind.RESUMABLE
    count = 1 if is_counted else allocations(spec, measured, option, useful_s)
    return useful_s * fraction + (count - 1) * (option.restore_s + option.downtime_s)


def allocations(spec: RunSpec, measured: Measured, option: Forecast, useful_s: float) -> int:
    """How many allocations hold a shard when nothing fails; 1 where that cannot be told."""
    walltime_s = longest_allocation(spec, option.machine)
    margin_s = _margin(measured, option)
    if walltime_s <= margin_s + option.restore_s:
        return 1  # the walltime constraint speaks of it
    share = (option.t_ckpt_s or 0.0) / option.unit_s if option.unit_s else 0.0
    return reservations(useful_s * (1.0 + share), walltime_s, option.restore_s, margin_s)


def shortest_allocation(spec: RunSpec, measured: Measured, option: Forecast) -> float:
    """Seconds of the shortest allocation that makes something durable: start, one step (or
    task, or stage) and its checkpoint, and the margin before the end."""
    unit_s = option.unit_s or 0.0
    if spec.work.kind is WorkKind.RESUMABLE:
        unit_s = measured.step_s or 0.0
    return option.restore_s + unit_s + (option.t_ckpt_s or 0.0) + _margin(measured, option)


def memory_gb(spec: RunSpec, measured: Measured) -> float | None:
    """GB a GPU must hold at least: its part of a checkpoint. None when that is not known."""
    if spec.resources.gpus == 0 or measured.ckpt_bytes is None:
        return None
    return measured.ckpt_bytes / spec.resources.gpus / 1e9


def _margin(measured: Measured, option: Forecast) -> float:
    p95 = None if measured.t_ckpt is None else measured.t_ckpt.p95_s / option.machine.write_speed
    return end_margin(p95, measured.step_s)
