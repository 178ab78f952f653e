"""What a shard is expected to cost in time on one machine."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from milepost.config.spec import RunSpec
from milepost.model import WorkKind
from milepost.planner import mtbf as mtbf_of
from milepost.planner.expected import Conditions
from milepost.planner.history import History, gives_way
from milepost.planner.interval import Interval, choose_interval
from milepost.planner.machine import Machine
from milepost.planner.measured import Measured, Spread
from milepost.planner.mtbf import Mtbf
from milepost.planner.preemption import effective_mtbf, forced_checkpoint_chance
from milepost.planner.theory import exact_overhead, textbook_overhead
from milepost.planner.upload import upload_seconds
from milepost.planner.walltime import end_margin, even_split, split_near

DEFAULT_DOWNTIME_S = 60.0
"""Assumed wait between a failure and the next start."""


@dataclass(frozen=True, slots=True)
class Hazard:
    """How often work is lost: hard failures, preemptions, and both as one effective MTBF."""

    failures: Mtbf
    preemptions: Mtbf | None
    is_exposed: bool
    saved_chance: float
    value_s: float
    low_s: float | None
    high_s: float | None

    @property
    def preempt_mtbf_s(self) -> float | None:
        """Mean seconds between preemptions; None when there are none."""
        return None if self.preemptions is None else self.preemptions.value_s

    @property
    def preempt_source(self) -> str:
        return "" if self.preemptions is None else self.preemptions.source

    @property
    def is_known(self) -> bool:
        """Is there more to plan the interval with than a default?"""
        return self.failures.is_known or self.preemptions is not None


@dataclass(frozen=True, slots=True)
class Forecast:
    """Interval and expected overhead of a shard on `machine`; seconds, None where unknown.

    `unit_s` is the useful work between two durable points and `t_ckpt_s` what one point costs
    (0 in batch and stages: a finished task or stage is durable by itself). `fraction` and
    `textbook` are extra seconds per useful second; `extra` is the part of it that does not hang on
    the interval: preemptions that lose no work and ends of allocations,
    1 + fraction = (1 + exact overhead) (1 + extra). `lag_s` is until a checkpoint is where a lost
    node does not take it along, `upload_s` the part of it behind the node's own disk.
    """

    machine: Machine
    hazard: Hazard
    interval: Interval
    unit_s: float | None
    t_ckpt_s: float | None
    restore_s: float
    downtime_s: float
    lag_s: float
    work_s: float | None
    fraction: float | None
    textbook: float | None
    extra: float = 0.0
    upload_s: float = 0.0


def forecast(
    spec: RunSpec, measured: Measured, history: History, machine: Machine, work_s: float | None
) -> Forecast:
    """Forecast a shard of `work_s` useful seconds (as measured; None: unknown) on `machine`."""
    t_ckpt = _scaled(measured.t_ckpt, machine.write_speed)
    upload_s = upload_seconds(spec, measured.ckpt_bytes)
    notice_s = max(0.0, (machine.notice_s or 0.0) - upload_s)
    hazard = _hazard(spec, history, machine, t_ckpt, measured.step_s, notice_s)
    useful_s = None if work_s is None else work_s / machine.speed
    mtbf_s = hazard.value_s if hazard.is_known else None
    interval = _interval(spec, measured, machine, t_ckpt, mtbf_s, useful_s)
    unit_s, cost_s = _durable_unit(spec, measured, machine, t_ckpt, interval)
    restore_s = _restore(measured, spec.work.kind, t_ckpt)
    lag_s = max(0.0, (measured.durable_s or 0.0) - (cost_s or 0.0)) if cost_s else 0.0
    lag_s += upload_s
    fraction, textbook, extra = None, None, 0.0
    if unit_s and cost_s is not None:
        args = (unit_s, cost_s, hazard.value_s, restore_s, DEFAULT_DOWNTIME_S, lag_s)
        plain = exact_overhead(*args)
        left_s = _left(spec, measured, machine, t_ckpt, restore_s + lag_s, useful_s)
        meets = _conditions(hazard, notice_s, t_ckpt, measured.step_s, left_s, args)
        fraction = meets.overhead(unit_s)
        extra = 0.0 if math.isinf(fraction) else (1.0 + fraction) / (1.0 + plain) - 1.0
        textbook = textbook_overhead(cost_s, unit_s, hazard.value_s)
    return Forecast(
        machine=machine,
        hazard=hazard,
        interval=interval,
        unit_s=unit_s,
        t_ckpt_s=cost_s,
        restore_s=restore_s,
        downtime_s=DEFAULT_DOWNTIME_S,
        lag_s=lag_s,
        work_s=useful_s,
        fraction=fraction,
        textbook=textbook,
        extra=extra,
        upload_s=upload_s,
    )


def _conditions(
    hazard: Hazard,
    notice_s: float,
    t_ckpt: Spread | None,
    step_s: float | None,
    left_s: float | None,
    args: tuple[float, float, float, float, float, float],
) -> Conditions:
    """What the formulas need to know; nothing is forced where no checkpoint was measured."""
    _, cost_s, _, restore_s, downtime_s, lag_s = args
    return Conditions(
        t_ckpt_s=cost_s,
        mtbf_s=hazard.failures.value_s,
        restore_s=restore_s,
        downtime_s=downtime_s,
        lag_s=lag_s,
        requeue_s=DEFAULT_DOWNTIME_S,
        left_s=left_s,
        preempt_mtbf_s=hazard.preempt_mtbf_s,
        notice_s=0.0 if t_ckpt is None else notice_s,
        step_s=step_s or 0.0,
        forced_median_s=0.0 if t_ckpt is None else t_ckpt.median_s,
        forced_p95_s=0.0 if t_ckpt is None else t_ckpt.p95_s,
    )


def _left(
    spec: RunSpec,
    measured: Measured,
    machine: Machine,
    t_ckpt: Spread | None,
    before_s: float,
    work_s: float | None,
) -> float | None:
    """Seconds of an allocation for work and checkpoints; None when the work fits into one."""
    if spec.work.kind is not WorkKind.RESUMABLE or t_ckpt is None or work_s is None:
        return None
    margin_s = end_margin(t_ckpt.p95_s, measured.step_s) - t_ckpt.median_s
    left_s = longest_allocation(spec, machine) - margin_s - before_s
    return None if work_s <= left_s or left_s <= t_ckpt.median_s else left_s


def longest_allocation(spec: RunSpec, machine: Machine) -> float:
    """Seconds of the longest allocation that may be asked for on a machine."""
    if machine.walltime_s is None:
        return spec.resources.runtime_s
    return min(spec.resources.runtime_s, machine.walltime_s)


def _hazard(
    spec: RunSpec,
    history: History,
    machine: Machine,
    t_ckpt: Spread | None,
    step_s: float | None,
    notice_s: float,
) -> Hazard:
    failures = mtbf_of.estimate(spec.planner.mtbf_h, history, machine.mtbf_h)
    is_exposed = machine.is_interruptible or gives_way(
        history, spec.slurm.partition, spec.slurm.qos
    )
    preemptions = mtbf_of.estimate_preemption(history, machine.preempt_mtbf_h, is_exposed)
    saved = 0.0
    if preemptions is not None and t_ckpt is not None:
        saved = forced_checkpoint_chance(notice_s, step_s or 0.0, t_ckpt.median_s, t_ckpt.p95_s)

    def both(mtbf_s: float | None, preempt_s: float | None) -> float | None:
        return None if mtbf_s is None else effective_mtbf(mtbf_s, preempt_s, saved)

    value_s = low_s = high_s = None
    if preemptions is not None:
        value_s, low_s, high_s = preemptions.value_s, preemptions.low_s, preemptions.high_s
    return Hazard(
        failures,
        preemptions,
        is_exposed,
        saved,
        effective_mtbf(failures.value_s, value_s, saved),
        both(failures.low_s, low_s),
        both(failures.high_s, high_s),
    )


def _interval(
    spec: RunSpec,
    measured: Measured,
    machine: Machine,
    t_ckpt: Spread | None,
    mtbf_s: float | None,
    work_s: float | None,
) -> Interval:
    is_resumable = spec.work.kind is WorkKind.RESUMABLE
    cost = t_ckpt if is_resumable else None
    found = choose_interval(
        spec.checkpoint.interval_s,
        None if cost is None else cost.median_s,
        mtbf_s,
        durable_s=measured.durable_s if is_resumable else None,
        is_interruptible=machine.is_interruptible,
        work_s=work_s,
    )
    if not is_resumable and spec.checkpoint.interval_s is None:
        return replace(found, source="default: finished tasks and stages are durable by themselves")
    if cost is None or spec.checkpoint.interval_s is not None or work_s is None:
        return found
    margin = end_margin(cost.p95_s, measured.step_s)
    left_s = longest_allocation(spec, machine) - margin - (measured.restore_s or 0.0)
    if work_s <= left_s or left_s <= 0.0:
        return found
    if mtbf_s is None:
        fitted = split_near(left_s, cost.median_s, found.seconds)
    else:
        fitted = even_split(left_s, cost.median_s, mtbf_s)
    if not measured.durable_s or fitted >= measured.durable_s:
        note = "interval fitted to the walltime: the work takes more than one allocation"
        seconds = min(fitted, found.seconds) if machine.is_interruptible else fitted
        return Interval(seconds, found.source, (*found.notes, note))
    return found


def _durable_unit(
    spec: RunSpec,
    measured: Measured,
    machine: Machine,
    t_ckpt: Spread | None,
    interval: Interval,
) -> tuple[float | None, float | None]:
    """Useful seconds between durable points, and what a point costs."""
    if spec.work.kind is WorkKind.RESUMABLE:
        return interval.seconds, None if t_ckpt is None else t_ckpt.median_s
    if measured.task is None:
        return None, None
    parts = max(1, len(spec.work.stages)) if spec.work.kind is WorkKind.STAGES else 1
    return measured.task.median_s / machine.speed / parts, 0.0


def _restore(measured: Measured, kind: WorkKind, t_ckpt: Spread | None) -> float:
    """Seconds from the start of an attempt to useful work."""
    if kind is not WorkKind.RESUMABLE:
        return measured.startup_s or 0.0
    if measured.restore_s is not None:
        return measured.restore_s + (measured.startup_s or 0.0)
    return (t_ckpt.median_s if t_ckpt else 0.0) + (measured.startup_s or 0.0)


def _scaled(spread: Spread | None, speed: float) -> Spread | None:
    if spread is None:
        return None
    return Spread(spread.median_s / speed, spread.p95_s / speed, spread.n)
