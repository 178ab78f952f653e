"""The plan of a run: from the contract, the smoke test and the profiles to plan.json."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from milepost.config.spec import RunSpec
from milepost.model import WorkKind
from milepost.planner.assumptions import list_assumptions, rounded
from milepost.planner.choose import Choice, Placement, choose_machine
from milepost.planner.forecast import Forecast
from milepost.planner.history import WINDOW_DAYS, read_history
from milepost.planner.measured import Measured, read_measured
from milepost.planner.memory import memory_notes, memory_of
from milepost.planner.sharding import ShardPlan, shard_seconds, split_tasks
from milepost.planner.theory import cost_overhead, cost_total
from milepost.planner.updated import mtbf_record
from milepost.planner.walltime import end_margin, reservations
from milepost.planner.words import duration, percent
from milepost.slurm.past import PastJobs

SCHEMA = 1
_NOTABLE = 0.05
"""Textbook and exact overhead that differ by more than this share are worth a note."""

_LONG_STARTUP = 0.2
"""A start-up that takes more than this share of a shard is worth a note."""


def make_plan(
    spec: RunSpec,
    smoke: Mapping[str, Any],
    tasks: int,
    attempts: Sequence[Mapping[str, Any]] = (),
    profiles: Mapping[str, Any] | None = None,
    jobs: PastJobs | None = None,
) -> dict[str, Any]:
    """Plan a run of `tasks` rows; the result is plan.json.

    `smoke` is a smoke.json that passed, `attempts` the attempt records of the run so far,
    `profiles` a parsed gpu_profiles.yaml, `jobs` what the accounting said. Pure: the same inputs give the same bytes. A wish
    that cannot be met is a ConfigError (sharding) or Refused (deadline, budget, memory).
    """
    measured = read_measured(smoke)
    history = read_history(attempts, jobs, spec.planner.history_days or WINDOW_DAYS)
    shards = _shards(spec, measured, tasks)
    choice = choose_machine(spec, measured, history, shards, profiles)
    found = choice.forecast
    walltime_s, walltime_source, notes = _walltime(spec, measured, shards, found)
    shard_s = None if found.work_s is None else found.work_s + _startup(spec, measured)
    plan: dict[str, Any] = rounded(
        {
            "schema": SCHEMA,
            "run": spec.name,
            "contract_digest": smoke.get("contract_digest"),
            "interval_s": min(part.forecast.interval.seconds for part in choice.placements),
            "interval_source": found.interval.source,
            "tasks_per_shard": (
                shards.tasks_per_shard if spec.work.kind is WorkKind.BATCH else None
            ),
            "shard_count": shards.shard_count,
            "shard_s": shard_s,
            "walltime_s": walltime_s,
            "mode": found.machine.mode,
            "profile": found.machine.profile,
            "placement": [_placement(part) for part in choice.placements],
            "expected_s": choice.time_s,
            "overhead": _overhead(choice),
            "cost": _cost(spec, choice),
            "memory": memory_of(spec, measured).as_json(),
            "mtbf": mtbf_record(history, found, spec.planner.mtbf_h),
            "assumptions": list_assumptions(
                spec, measured, history, choice, tasks, walltime_s, walltime_source
            ),
            "notes": [*found.interval.notes, *notes, *_notes(spec, smoke, measured, choice)],
        }
    )
    return plan


def _shards(spec: RunSpec, measured: Measured, tasks: int) -> ShardPlan:
    """Batch is cut; every row of another kind is a shard. `shard_s` holds useful seconds only."""
    task_s = None if measured.task is None else measured.task.median_s
    if spec.work.kind is not WorkKind.BATCH:
        return ShardPlan(1, tasks, None if measured.is_reduced else task_s)
    cut = split_tasks(tasks, spec.shards, task_s, measured.startup_s, spec.resources.cpus)
    work_s = shard_seconds(cut.tasks_per_shard, task_s, 0.0, spec.resources.cpus)
    return ShardPlan(cut.tasks_per_shard, cut.shard_count, work_s)


def _startup(spec: RunSpec, measured: Measured) -> float:
    return (measured.startup_s or 0.0) if spec.work.kind is WorkKind.BATCH else 0.0


def _walltime(
    spec: RunSpec, measured: Measured, shards: ShardPlan, found: Forecast
) -> tuple[int, str, list[str]]:
    """Walltime of a shard in whole minutes, at most resources.runtime_s; its source; notes."""
    limit = spec.resources.runtime_s
    if measured.task is None or measured.is_reduced or found.work_s is None:
        return limit, "stated in the config (resources.runtime_s)", []
    slow = measured.task.p95_s / measured.task.median_s if measured.task.median_s > 0 else 1.0
    work_s = found.work_s * slow
    ckpt_share = (found.t_ckpt_s or 0.0) / found.unit_s if found.unit_s else 0.0
    p95 = None if measured.t_ckpt is None else measured.t_ckpt.p95_s / found.machine.write_speed
    margin_s = end_margin(p95, measured.step_s)
    busy_s = work_s * (1.0 + ckpt_share)
    need_s = (measured.startup_s or 0.0) + busy_s + found.restore_s + margin_s
    if need_s <= limit:
        walltime_s = min(limit, 60 * math.ceil(need_s / 60.0))
        return walltime_s, "measured by the smoke test (95 % quantile and margin)", []
    count = reservations(busy_s, limit, found.restore_s, margin_s)
    note = (
        f"a shard needs about {duration(need_s)} and resources.runtime_s is {duration(limit)}: "
        f"expect {count} allocations for each"
    )
    return limit, "stated in the config (resources.runtime_s)", [note]


def _placement(part: Placement) -> dict[str, Any]:
    machine = part.forecast.machine
    return {
        "profile": machine.profile,
        "mode": machine.mode,
        "shards": part.shards,
        "interval_s": part.forecast.interval.seconds,
    }


def _overhead(choice: Choice) -> dict[str, Any]:
    """Overhead of the whole run, and what the report needs to draw it at other intervals."""
    found = choice.forecast
    useful_s, overhead_s = _totals(choice)
    is_finite = found.fraction is not None and math.isfinite(found.fraction)
    return {
        "fraction": found.fraction if is_finite else None,
        "seconds": overhead_s,
        "textbook_fraction": found.textbook,
        "useful_s": useful_s,
        "unit_s": found.unit_s,
        "t_ckpt_s": found.t_ckpt_s,
        "restore_s": found.restore_s,
        "downtime_s": found.downtime_s,
        "durable_lag_s": found.lag_s,
        "mtbf_s": found.hazard.value_s,
        "mtbf_low_s": found.hazard.low_s,
        "mtbf_high_s": found.hazard.high_s,
    }


def _totals(choice: Choice) -> tuple[float | None, float | None]:
    """Useful and overhead seconds of all shards; None when one of them is not known."""
    useful_s = overhead_s = 0.0
    is_known = True
    for part in choice.placements:
        if part.forecast.work_s is None:
            return None, None
        useful_s += part.forecast.work_s * part.shards
        fraction = part.forecast.fraction
        if fraction is None or not math.isfinite(fraction):
            is_known = False
        else:
            overhead_s += part.forecast.work_s * part.shards * fraction
    return useful_s, overhead_s if is_known else None


def _cost(spec: RunSpec, choice: Choice) -> dict[str, Any] | None:
    """Expected cost of the run; None when a price or the work is not known."""
    units = max(1, spec.resources.gpus)
    total = overhead = 0.0
    for part in choice.placements:
        machine, useful_s, fraction = (
            part.forecast.machine,
            part.forecast.work_s,
            part.forecast.fraction,
        )
        if machine.price_per_h is None or useful_s is None or fraction is None:
            return None
        if not math.isfinite(fraction):
            return None
        lost_s = useful_s * fraction * part.shards
        paid = (machine.price_per_h, units, machine.utilisation)
        overhead += cost_overhead(*paid, lost_s)
        total += cost_total(*paid, useful_s * part.shards, lost_s)
    first = choice.forecast.machine
    return {
        "currency": choice.currency,
        "total": total,
        "overhead": overhead,
        "price_per_h": first.price_per_h,
        "units": units,
        "utilisation": first.utilisation,
    }


def _startup_note(spec: RunSpec, measured: Measured, found: Forecast) -> list[str]:
    startup_s = _startup(spec, measured)
    if found.work_s is None or startup_s <= _LONG_STARTUP * (found.work_s + startup_s):
        return []
    share = startup_s / (found.work_s + startup_s)
    return [
        f"start-up takes {duration(startup_s)}, {percent(share)} of a shard: "
        "larger shards waste less"
    ]


def _notes(
    spec: RunSpec, smoke: Mapping[str, Any], measured: Measured, choice: Choice
) -> list[str]:
    found = choice.forecast
    notes = [*choice.notes, *found.hazard.failures.notes]
    notes += memory_notes(memory_of(spec, measured))
    notes += _startup_note(spec, measured, found)
    if measured.is_reduced:
        names = ", ".join(sorted(smoke["slice"]["set"]))
        notes.append(
            f"the smoke slice overwrote {names}: its seconds per task are not those of the run"
        )
    exact, textbook = found.fraction, found.textbook
    if exact is not None and not math.isfinite(exact):
        notes.append(
            f"failures every {duration(found.hazard.value_s)} leave no time to finish "
            f"{duration(found.unit_s)} of work: shorten the interval or the tasks"
        )
    elif (spec.work.kind is WorkKind.RESUMABLE and exact and textbook is not None) and abs(
        textbook - exact
    ) > _NOTABLE * exact:
        notes.append(
            f"the textbook formula gives {100 * textbook:.3g} % overhead, the exact one "
            f"{100 * exact:.3g} %; the exact one also counts restart and repeated failures"
        )
    return notes
