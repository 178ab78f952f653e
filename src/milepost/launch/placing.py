"""Which of the plan's places each shard gets, when the shard table is frozen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from milepost.config.spec import RunSpec
from milepost.config.tasks import row_size
from milepost.model import Shard, WorkKind
from milepost.placement import find_record
from milepost.planner.classes import SizeClass, class_of
from milepost.shardtable import Place

Records = Sequence[Mapping[str, Any]]


def place_shards(
    shards: Sequence[Shard],
    plan: Mapping[str, Any],
    size_of: Callable[[Shard], float],
    begun: Collection[str] = (),
) -> list[Shard]:
    """The shards with profile and mode: the plan's shares of each class of sizes, dealt evenly.

    A shard of `begun` stays where it is, since a restart elsewhere may not be legal; another one
    stays as long as the plan wants that many there. Shards beyond the plan's numbers are dealt in
    its proportions.
    """
    records: Records = plan.get("placement") or ()
    classes = _classes(plan)
    if not records or not classes:
        return list(shards)
    places = [(one["profile"], one["mode"]) for one in records]
    at = {shard.name: class_of(classes, size_of(shard)) for shard in shards}
    left = _wanted(records)
    chosen: dict[str, Place] = {}
    for shard in sorted(shards, key=lambda one: one.name not in begun):
        place = (at[shard.name], _place(shard))
        if shard.mode and (shard.name in begun or left[place] > 0):
            chosen[shard.name] = _place(shard)
            left[place] -= 1
    for position in range(len(classes)):
        new = [s for s in shards if s.name not in chosen and at[s.name] == position]
        new.sort(key=lambda shard: (size_of(shard), shard.name))
        chosen |= _deal(new, {place: max(0, left[position, place]) for place in places})
    return [replace(s, profile=chosen[s.name][0], mode=chosen[s.name][1]) for s in shards]


def used_records(
    shards: Sequence[Shard], plan: Mapping[str, Any], before: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """What the plan says about each place in use, or what the submission before this one said."""
    found = []
    for place in dict.fromkeys(_place(shard) for shard in shards if shard.mode):
        record = find_record(plan.get("placement"), place)
        record = record or find_record(before.get("placements"), place)
        found += [] if record is None else [record]
    return found


def shard_size(spec: RunSpec) -> Callable[[Shard], float]:
    """The size of a shard in the units of the plan's classes."""
    column = spec.planner.size

    def size(shard: Shard) -> float:
        if column is not None:
            return sum(row_size(task, column) for task in shard.tasks)
        return float(len(shard.tasks)) if spec.work.kind is WorkKind.BATCH else 1.0

    return size


def _classes(plan: Mapping[str, Any]) -> list[SizeClass]:
    unit = float(plan.get("size_unit") or 1.0)
    return [
        SizeClass(one["size"] * unit, one["shards"], one["least"] * unit, one["most"] * unit)
        for one in plan.get("classes") or ()
    ]


def _wanted(records: Records) -> Counter[tuple[int, Place]]:
    """Shards of each class that each place is to have."""
    wanted: Counter[tuple[int, Place]] = Counter()
    for one in records:
        for part in one["classes"]:
            wanted[part["class"], (one["profile"], one["mode"])] = part["shards"]
    return wanted


def _deal(shards: Sequence[Shard], wanted: Mapping[Place, int]) -> dict[str, Place]:
    """Each shard to the place that is furthest behind its share; ties to the plan's first."""
    dealt: Counter[Place] = Counter()
    weight = dict(wanted)
    if not any(weight.values()):
        weight[next(iter(weight))] = 1
    total = sum(weight.values())
    found: dict[str, Place] = {}
    for count, shard in enumerate(shards, start=1):
        place = max(weight, key=lambda one: weight[one] * count / total - dealt[one])
        dealt[place] += 1
        found[shard.name] = place
    return found


def _place(shard: Shard) -> Place:
    return shard.profile, shard.mode
