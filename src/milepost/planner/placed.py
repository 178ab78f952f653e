"""Where the shards go, as the plan says it and as the shards will ask for it."""

from __future__ import annotations

import math
from typing import Any

from milepost.config.spec import RunSpec
from milepost.planner.choose import Choice, Placement
from milepost.planner.costs import running_cost_of
from milepost.planner.forecast import longest_allocation
from milepost.planner.measured import Measured
from milepost.planner.offers import Load
from milepost.planner.walltime import end_margin, reservations
from milepost.planner.words import duration

STATED_WALLTIME = "stated in the config (resources.runtime_s)"
MEASURED_WALLTIME = "measured by the smoke test (95 % quantile and margin)"
PROFILE_WALLTIME = "stated in the profile (walltime_max_h)"


def placement_records(
    spec: RunSpec, measured: Measured, load: Load, choice: Choice
) -> list[dict[str, Any]]:
    """The block `placement` of a plan, the largest part first.

    `walltime_s` is what a shard asks for: what it needs on a chosen profile, else what the user
    stated.
    """
    return [_record(spec, measured, load, part) for part in choice.placements]


def _record(spec: RunSpec, measured: Measured, load: Load, part: Placement) -> dict[str, Any]:
    found, machine = part.forecast, part.forecast.machine
    walltime_s = spec.resources.runtime_s
    if machine.profile is not None:
        walltime_s, _, _ = walltime(spec, measured, load, part)
    return {
        "profile": machine.profile,
        "mode": machine.mode,
        "shards": part.shards,
        "classes": [{"class": at, "shards": count} for at, count in part.classes],
        "interval_s": found.interval.seconds,
        "walltime_s": walltime_s,
        "price_per_h": machine.price_per_h,
        "utilisation": machine.utilisation,
        "fraction": found.fraction if _is_finite(found.fraction) else None,
        "useful_s": part.useful_s,
        "overhead_s": part.lost_s,
        "running_cost": running_cost_of(spec, part),
        "mtbf_s": found.hazard.value_s,
        "notice_s": machine.notice_s,
        "believed": {
            "profile_h": machine.mtbf_h,
            "preempt_h": machine.preempt_mtbf_h,
            "saved_chance": found.hazard.saved_chance,
            "is_exposed": found.hazard.is_exposed,
        },
        "slurm": dict(machine.slurm),
    }


def class_records(load: Load) -> list[dict[str, Any]]:
    """The block `classes` of a plan: sizes of shards, in tasks, or in rows where each is one."""
    return [
        {
            "size": one.size,
            "least": one.least,
            "most": one.most,
            "shards": one.count,
            "useful_s": None if load.longest_s is None else load.seconds(position),
        }
        for position, one in enumerate(load.classes)
    ]


def walltime(
    spec: RunSpec, measured: Measured, load: Load, part: Placement
) -> tuple[int, str, list[str]]:
    """Walltime of the longest shard of a placement in whole minutes; its source; notes.

    At most what the contract and the profile allow.
    """
    found = part.forecast
    limit = int(longest_allocation(spec, found.machine))
    stated = STATED_WALLTIME if limit == spec.resources.runtime_s else PROFILE_WALLTIME
    if measured.task is None or load.longest_s is None:
        return limit, stated, []
    slow = measured.task.p95_s / measured.task.median_s if measured.task.median_s > 0 else 1.0
    longest = max((at for at, _ in part.classes), default=0)
    work_s = load.seconds(longest) / found.machine.speed * slow
    ckpt_share = (found.t_ckpt_s or 0.0) / found.unit_s if found.unit_s else 0.0
    p95 = None if measured.t_ckpt is None else measured.t_ckpt.p95_s / found.machine.write_speed
    margin_s = end_margin(p95, measured.step_s)
    busy_s = work_s * (1.0 + ckpt_share)
    need_s = (measured.startup_s or 0.0) + busy_s + found.restore_s + margin_s
    if need_s <= limit:
        return min(limit, 60 * math.ceil(need_s / 60.0)), MEASURED_WALLTIME, []
    count = reservations(busy_s, limit, found.restore_s, margin_s)
    key = "resources.runtime_s" if stated == STATED_WALLTIME else "the profile's walltime_max_h"
    note = (
        f"a shard needs about {duration(need_s)} and {key} is {duration(limit)}: "
        f"expect {count} allocations for each"
    )
    return limit, stated, [note]


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
