"""Plan and outcome beside each other, shard by shard. Pure; None is n/a, never 0.

What the plan foretells of a shard is an expectation over many; what one shard went through may be
far from it and all the same as planned. The sums over all shards are what to judge a plan by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from milepost.clock import epoch
from milepost.evidence.account import (
    blocked_s,
    end_of,
    is_interrupted,
    lost_s,
    shard_wall_s,
    total,
)
from milepost.evidence.types import RunEvidence, ShardEvidence
from milepost.model import WorkKind


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where the time of one shard goes, planned or observed. Wall seconds, core hours, money."""

    interval_s: float | None = None
    mtbf_s: float | None = None
    useful_s: float | None = None
    checkpoint_s: float | None = None
    lost_s: float | None = None
    restart_s: float | None = None
    waiting_s: float | None = None
    core_h: float | None = None
    cost: float | None = None
    overhead_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class ShardAccount:
    """A shard's ledgers. `currency` is that of the plan's price; `profile` and `mode` say where
    the shard was, None where the plan knows one place only."""

    shard: str
    attempts: int
    interruptions: int
    currency: str | None
    planned: Ledger
    observed: Ledger
    profile: str | None = None
    mode: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def shard_accounts(run: RunEvidence) -> list[ShardAccount]:
    """One account for each shard that was tried, in the order of the table.

    Those of an older cut come last, without a plan: the plan is that of the shards of today.
    """
    plan = run.plan or {}
    older = {shard.name for shard in run.older}
    currency = (plan.get("cost") or {}).get("currency")
    return [
        ShardAccount(
            shard.name,
            len(shard.attempts),
            sum(map(is_interrupted, shard.attempts)),
            currency,
            Ledger() if shard.name in older else _planned(run, plan_at(run, shard.name)),
            observed(run, shard),
            *run.places.get(shard.name, (None, None)),
        )
        for shard in run.every_shard
        if shard.attempts
    ]


def plan_at(run: RunEvidence, shard: str) -> Mapping[str, Any]:
    """The plan with the numbers of the place where a shard is, when there are several."""
    plan, record = run.plan or {}, run.placed(shard)
    if record is None:
        return plan
    overhead = {
        **(plan.get("overhead") or {}),
        "fraction": record.get("fraction"),
        "mtbf_s": record.get("mtbf_s"),
        "useful_s": record.get("useful_s"),
        "seconds": record.get("overhead_s"),
    }
    cost = {
        **(plan.get("cost") or {}),
        "running": record.get("running_cost"),
        "price_per_h": record.get("price_per_h"),
        "utilisation": record.get("utilisation"),
    }
    return {
        **plan,
        "interval_s": record.get("interval_s"),
        "shard_count": record.get("shards"),
        "overhead": overhead,
        "cost": cost if plan.get("cost") else None,
    }


def _planned(run: RunEvidence, plan: Mapping[str, Any]) -> Ledger:
    """The mean shard of the plan.

    Of the overhead, checkpoints are useful_s / interval_s of them; failures are the expected time
    over the MTBF, each with a restore and a wait; the rest is work done again.
    """
    found, count = plan.get("overhead") or {}, plan.get("shard_count")
    mtbf_s, interval_s = found.get("mtbf_s"), plan.get("interval_s")
    is_resumable = run.spec is not None and run.spec.work.kind is WorkKind.RESUMABLE
    useful_s, overhead_s = found.get("useful_s"), found.get("seconds")
    if not count or useful_s is None or overhead_s is None or not mtbf_s:
        return Ledger(
            interval_s=interval_s if is_resumable else None,
            mtbf_s=mtbf_s,
            overhead_fraction=found.get("fraction"),
        )
    useful_s, overhead_s = useful_s / count, overhead_s / count
    failures = (useful_s + overhead_s) / mtbf_s
    t_ckpt_s = found.get("t_ckpt_s")
    checkpoint_s = None
    if is_resumable and t_ckpt_s is not None and interval_s:
        checkpoint_s = useful_s / interval_s * t_ckpt_s
    restart_s = failures * (found.get("restore_s") or 0.0)
    waiting_s = failures * (found.get("downtime_s") or 0.0)
    again_s = max(0.0, overhead_s - (checkpoint_s or 0.0) - restart_s - waiting_s)
    allocated_s = useful_s + overhead_s - waiting_s
    cost = running_cost(plan)
    return Ledger(
        interval_s=interval_s if is_resumable else None,
        mtbf_s=mtbf_s,
        useful_s=useful_s,
        checkpoint_s=checkpoint_s,
        lost_s=again_s,
        restart_s=restart_s,
        waiting_s=waiting_s,
        core_h=None if run.spec is None else run.spec.resources.cpus * allocated_s / 3600.0,
        cost=None if cost is None else cost / count,
        overhead_fraction=found.get("fraction"),
    )


def observed(run: RunEvidence, shard: ShardEvidence) -> Ledger:
    """What one shard went through."""
    spec = run.spec
    wall_s = shard_wall_s(shard)
    checkpoint_s = blocked_s(shard)
    again_s = again_seconds(shard)
    restart_s = _restart_s(shard)
    useful_s = useful_seconds(run, shard)
    interruptions = sum(map(is_interrupted, shard.attempts))
    parts = [value for value in (checkpoint_s, again_s) if value is not None]
    return Ledger(
        interval_s=_interval_s(shard),
        mtbf_s=wall_s / interruptions if interruptions and wall_s else None,
        useful_s=useful_s,
        checkpoint_s=checkpoint_s,
        lost_s=again_s,
        restart_s=restart_s,
        waiting_s=_waiting_s(shard),
        core_h=None if spec is None or wall_s is None else spec.resources.cpus * wall_s / 3600.0,
        cost=None if wall_s is None else cost_of(plan_at(run, shard.name), wall_s),
        overhead_fraction=sum(parts) / useful_s if parts and useful_s else None,
    )


def running_cost(plan: Mapping[str, Any]) -> float | None:
    """What the plan's allocations cost: all but the storage, which no attempt can tell."""
    cost = plan.get("cost") or {}
    found: float | None = cost.get("running", cost.get("total"))
    return found


def cost_of(plan: Mapping[str, Any], wall_s: float) -> float | None:
    """c N / U for so many seconds of an allocation, at the price of the plan; n/a without one."""
    cost = plan.get("cost")
    if not cost or cost.get("price_per_h") is None:
        return None
    price = float(cost["price_per_h"]) * float(cost["units"]) / float(cost["utilisation"])
    return wall_s / 3600.0 * price


def useful_seconds(run: RunEvidence, shard: ShardEvidence) -> float | None:
    """Wall seconds of work that was not done again.

    Of one long process: what is left of the attempts without checkpoints, restarts and work done
    again, those included that were killed. Of a batch: its tasks' seconds over the cores.
    """
    spec = run.spec
    if spec is None or spec.work.kind is not WorkKind.RESUMABLE:
        cpus = 1
        if spec is not None and spec.work.kind is WorkKind.BATCH:
            cpus = spec.resources.gpus or spec.resources.cpus
        seconds = total(attempt.useful_s for attempt in shard.attempts)
        return None if seconds is None else seconds / cpus
    wall_s = shard_wall_s(shard)
    if wall_s is None:
        return None
    spent = (blocked_s(shard), again_seconds(shard), _restart_s(shard))
    return max(0.0, wall_s - math.fsum(value or 0.0 for value in spent))


def again_seconds(shard: ShardEvidence) -> float | None:
    """Seconds of work that had to be done again; 0 where every attempt came to its own good end,
    None where an interruption left nobody to tell."""
    known = total(lost_s(shard).values())
    if known is None and shard.attempts and all(a.stop == "done" for a in shard.attempts):
        return 0.0
    return known


def _restart_s(shard: ShardEvidence) -> float | None:
    """Seconds of reading checkpoints back."""
    return total((attempt.restored or {}).get("seconds") for attempt in shard.attempts)


def _waiting_s(shard: ShardEvidence) -> float | None:
    """Seconds between the end of an attempt and the start of the next; 0 with a single one."""
    waits = []
    for before, after in pairwise(shard.attempts):
        end = end_of(before)
        if end is None or after.started is None:
            return None
        waits.append(max(0.0, epoch(after.started) - epoch(end)))
    return math.fsum(waits)


def _interval_s(shard: ShardEvidence) -> float | None:
    """Mean seconds of work between two checkpoints of the same attempt."""
    spans = list(_between(shard))
    return math.fsum(spans) / len(spans) if spans else None


def _between(shard: ShardEvidence) -> Iterator[float]:
    starts = [epoch(a.started) for a in shard.attempts if a.started]
    for before, after in pairwise(shard.checkpoints):
        first, second = epoch(before.time), epoch(after.time)
        if not any(first < start <= second for start in starts):
            yield max(0.0, second - first - (before.blocked_s or 0.0))
