"""The plan of a run: from the contract, the smoke test and the profiles to plan.json."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from milepost.config.spec import RunSpec
from milepost.model import WorkKind
from milepost.planner.assumptions import list_assumptions, rounded
from milepost.planner.choose import Choice, choose_machine
from milepost.planner.classes import classify, worst_error
from milepost.planner.costs import NOTABLE, cost_block, numbers, overhead_block
from milepost.planner.forecast import Forecast
from milepost.planner.history import WINDOW_DAYS, read_history
from milepost.planner.measured import Measured, read_measured
from milepost.planner.memory import memory_notes, memory_of
from milepost.planner.offers import Load
from milepost.planner.placed import class_records, placement_records, walltime
from milepost.planner.problem import Assignment
from milepost.planner.sharding import RowSizes, ShardPlan, shard_seconds, shard_sizes, split_tasks
from milepost.planner.updated import mtbf_record
from milepost.planner.words import duration, percent
from milepost.slurm.past import PastJobs

SCHEMA = 1
_LONG_STARTUP = 0.2
"""A start-up that takes more than this share of a shard is worth a note."""


def make_plan(
    spec: RunSpec,
    smoke: Mapping[str, Any],
    tasks: int,
    attempts: Sequence[Mapping[str, Any]] = (),
    profiles: Mapping[str, Any] | None = None,
    jobs: PastJobs | None = None,
    sizes: RowSizes | None = None,
) -> dict[str, Any]:
    """Plan a run of `tasks` rows; the result is plan.json.

    `smoke` is a smoke.json that passed, `attempts` the attempt records of the run so far,
    `profiles` a parsed gpu_profiles.yaml, `jobs` what the accounting said, `sizes` the work of
    each row (None: they are alike). Pure: the same inputs
    give the same bytes. A wish that cannot be met is a ConfigError (sharding) or Refused
    (deadline, budget, storage, memory, walltime, capacity).
    """
    measured = read_measured(smoke)
    history = read_history(attempts, jobs, spec.planner.history_days or WINDOW_DAYS)
    relative = None if sizes is None else sizes.relative
    shards = _shards(spec, measured, tasks, relative)
    load = _load(spec, measured, shards, tasks, relative)
    choice = choose_machine(spec, measured, history, load, profiles)
    found = choice.forecast
    walltime_s, walltime_source, notes = walltime(spec, measured, load, choice.placements[0])
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
            "placement": placement_records(spec, measured, load, choice),
            "classes": class_records(load),
            "size_unit": None if sizes is None else sizes.unit,
            "expected_s": choice.time_s,
            "overhead": overhead_block(choice),
            "cost": cost_block(spec, choice),
            "numbers": numbers(spec, choice),
            "choice": _answer(load, choice),
            "frontier": _points(choice),
            "memory": memory_of(spec, measured).as_json(),
            "mtbf": mtbf_record(history, found, spec.planner.mtbf_h),
            "assumptions": list_assumptions(
                spec, measured, history, choice, tasks, walltime_s, walltime_source
            ),
            "notes": [*found.interval.notes, *notes, *_notes(spec, smoke, measured, choice)],
        }
    )
    return plan


def _shards(
    spec: RunSpec, measured: Measured, tasks: int, sizes: Sequence[float] | None
) -> ShardPlan:
    """Batch is cut; every row of another kind is a shard. `shard_s` holds useful seconds only."""
    task_s = None if measured.task is None else measured.task.median_s
    if spec.work.kind is not WorkKind.BATCH:
        return ShardPlan(1, tasks, None if measured.is_reduced else task_s)
    if task_s is not None and sizes:
        task_s *= sum(sizes) / len(sizes)
    cut = split_tasks(tasks, spec.shards, task_s, measured.startup_s, spec.resources.cpus)
    work_s = shard_seconds(cut.tasks_per_shard, task_s, 0.0, spec.resources.cpus)
    return ShardPlan(cut.tasks_per_shard, cut.shard_count, work_s)


def _load(
    spec: RunSpec,
    measured: Measured,
    shards: ShardPlan,
    tasks: int,
    sizes: Sequence[float] | None,
) -> Load:
    """Classes of equal shards, and the useful seconds of the largest."""
    is_batch = spec.work.kind is WorkKind.BATCH
    classes = tuple(classify(shard_sizes(shards, tasks, sizes, is_batch=is_batch)))
    longest_s = shards.shard_s
    if longest_s is not None and sizes:
        assert measured.task is not None  # or the seconds would not be known
        side = max(1, spec.resources.cpus) if is_batch else 1
        longest_s = max(classes[-1].most / side, max(sizes)) * measured.task.median_s
    return Load(classes, longest_s)


def _answer(load: Load, choice: Choice) -> dict[str, Any] | None:
    """Who found the assignment, how good it is at least; None when there was nothing to choose."""
    if choice.found is None:
        return None
    return {
        "solver": choice.found.solver,
        "time_s": choice.time_s,
        "cost": choice.found.cost,
        "gap": choice.found.gap,
        "class_error": worst_error(load.classes),
        "stored_gb": choice.found.stored_gb,
    }


def _points(choice: Choice) -> list[dict[str, Any]]:
    """Cost against time, storage included as far as it is known; the chosen point among them."""
    points = [_point(one) for one in choice.frontier]
    chosen = None if choice.found is None or choice.time_s is None else _point(choice.found)
    for point in points:
        point["is_chosen"] = chosen is not None and _is_same(point, chosen)
    if chosen is not None and not any(point["is_chosen"] for point in points):
        points.append(chosen | {"is_chosen": True})
    return sorted(points, key=lambda point: (point["time_s"], point["cost"]))


def _point(one: Assignment) -> dict[str, Any]:
    shards: dict[str, int] = {}
    for (_, offer), count in one.shares.items():
        shards[offer] = shards.get(offer, 0) + count
    return {"time_s": one.time_s, "cost": one.cost, "shards": shards}


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(math.isclose(one[key], other[key]) for key in ("time_s", "cost"))


def _startup(spec: RunSpec, measured: Measured) -> float:
    return (measured.startup_s or 0.0) if spec.work.kind is WorkKind.BATCH else 0.0


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
    ) > NOTABLE * exact:
        notes.append(
            f"the textbook formula gives {100 * textbook:.3g} % overhead, the exact one "
            f"{100 * exact:.3g} %; the exact one also counts restart and repeated failures"
        )
    return notes
