"""What a shard asks a scheduler for, and how a retry asks for more of what was lacking.

A pure function of the run, of what the smoke test measured, and of how the shard's attempts
ended. Bounds are the contract's: memory grows by half for each attempt that lacked it, time by
half only where the CPUs were busy, and never beyond what the node or the user allows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from milepost.config.spec import RunSpec
from milepost.errors import SchedulerError
from milepost.evidence.unsaid import completed
from milepost.lease import attempt_records
from milepost.model import Action
from milepost.paths import RunPaths
from milepost.placement import record_of_shard
from milepost.slurm.limits import partitions

GROWTH = 1.5
NOTICE_S = 60.0
"""Beyond a checkpoint and a step: Slurm may send its signal late, and processes need to end."""
BUSY_SHARE = 0.5
"""Of the granted CPU time: below it a job that ran out of time was waiting, not working."""


@dataclass(frozen=True, slots=True)
class Request:
    """Memory in MB, wall time in seconds; `notice_s` before its end comes the signal.

    `gpu_model` is the type of GPU, None: any.
    """

    mem_mb: int
    runtime_s: int
    notice_s: int
    gpu_model: str | None = None


def request(
    spec: RunSpec,
    smoke: Mapping[str, Any] | None,
    attempts: Sequence[Mapping[str, Any]],
    most_mem_mb: int | None = None,
    record: Mapping[str, Any] | None = None,
) -> Request:
    """The request of the next attempt; `attempts` are the records of those before it.

    `most_mem_mb` is the largest memory of a node, None where it is not known. `record` is what
    the plan says about the shard's place.
    """
    place = record or {}
    planned_s = place.get("walltime_s") if place.get("profile") else None
    lacks = [_lack(record, spec) for record in attempts]
    mem_mb = spec.resources.mem_mb * GROWTH ** lacks.count(Action.RETRY_MORE_MEMORY)
    runtime_s = (planned_s or spec.resources.runtime_s) * GROWTH ** lacks.count(
        Action.LONGER_WALLTIME
    )
    if most_mem_mb is not None:
        mem_mb = max(spec.resources.mem_mb, min(mem_mb, most_mem_mb))
    notice_s = min(notice(smoke), int(runtime_s / 3))
    model = (place.get("slurm") or {}).get("gpu_model")
    return Request(math.ceil(mem_mb), math.ceil(runtime_s), notice_s, model)


def placed_spec(spec: RunSpec, record: Mapping[str, Any] | None) -> RunSpec:
    """The run as it is for a shard of one place: where that names a partition or the like, it
    counts before the run's own."""
    named = dict((record or {}).get("slurm") or {})
    named.pop("gpu_model", None)
    return replace(spec, slurm=replace(spec.slurm, **named)) if named else spec


def notice(smoke: Mapping[str, Any] | None) -> int:
    """Seconds before the walltime's end at which the work must hear of it: p95 of a checkpoint,
    one step, and `NOTICE_S`."""
    measured = {} if smoke is None else smoke["measured"]
    blocked_s: float = (measured.get("t_ckpt_s") or {}).get("p95", 0.0)
    durable_s: float = measured.get("durable_s") or 0.0
    step_s: float = measured.get("step_s") or 0.0
    return math.ceil(max(blocked_s, durable_s) + step_s + NOTICE_S)


def _lack(record: Mapping[str, Any], spec: RunSpec) -> Action | None:
    """What an attempt lacked; None when more of something would not have helped it."""
    finding = record.get("finding")
    if not isinstance(finding, Mapping):
        return None
    action = Action(finding["action"])
    if action is Action.LONGER_WALLTIME and not _was_busy(record, spec):
        return None
    return action


def _was_busy(record: Mapping[str, Any], spec: RunSpec) -> bool:
    cpu_s, useful_s = record.get("cpu_s"), record.get("useful_s")
    if cpu_s is None or not useful_s:
        return False
    return bool(cpu_s >= BUSY_SHARE * useful_s * spec.resources.cpus)


def request_of(spec: RunSpec, paths: RunPaths, shard: str, most_mem_mb: int | None) -> Request:
    """The request of a shard from what stands on disk about it."""
    try:
        smoke = json.loads(paths.smoke.read_text(encoding="utf-8"))
    except FileNotFoundError:
        smoke = None
    live = paths.shard(shard).live
    attempts = [completed(live, record) for record in attempt_records(live)]
    return request(spec, smoke, attempts, most_mem_mb, record_of_shard(paths, shard))


@cache
def most_mem_mb(partition: str | None) -> int | None:
    """Memory of the largest node of a partition (None: the default one); None where not heard."""
    try:
        known = partitions()
    except SchedulerError:
        return None
    named = partition.split(",") if partition else [p.name for p in known.values() if p.is_default]
    sizes = [known[name].mem_per_node_bytes or 0 for name in named if name in known]
    return max(sizes, default=0) // (1 << 20) or None
