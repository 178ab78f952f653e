"""What was planned beside what was observed; n/a where there is no number."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.evidence.account import Account, shard_wall_s
from milepost.evidence.shard_accounts import cost_of, plan_at, running_cost
from milepost.evidence.types import RunEvidence
from milepost.evidence.words import duration
from milepost.model import WorkKind


def planned_observed(run: RunEvidence, account: Account) -> list[tuple[str, str, str]]:
    """Rows (what, planned, observed) for people; n/a where there is no number."""
    plan = run.plan or {}
    measured = (run.smoke or {}).get("measured") or {}
    ckpt = (measured.get("t_ckpt_s") or {}).get("median")
    batch = run.spec is not None and run.spec.work.kind is WorkKind.BATCH
    task = (measured.get("task_s") or {}).get("median") if batch else None
    seen = [s.task_s for s in run.shards if s.task_s is not None]
    walls = [w for s in run.shards if (w := shard_wall_s(s)) is not None]
    return [
        (
            "overhead of checkpoints and lost work",
            _percent((plan.get("overhead") or {}).get("fraction")),
            _percent(account.overhead_fraction),
        ),
        ("time of a shard", duration(plan.get("shard_s")), duration(_mean(walls))),
        ("time of a task", duration(task), duration(_mean(seen))),
        ("a checkpoint blocks for", duration(ckpt), duration(account.blocked_s)),
        (
            "a checkpoint is durable after",
            duration(measured.get("durable_s")),
            duration(account.durable_s),
        ),
        ("cost", _money(run, running_cost(plan)), price(run, account)),
    ]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _money(run: RunEvidence, value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4g} {(run.plan or {})['cost']['currency']}"


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.3g} %"


def price(run: RunEvidence, account: Account) -> str:
    """Observed cost at the price of the plan; n/a without one."""
    value = observed_cost(run, account)
    return "n/a" if value is None else f"{value:.4g} {(run.plan or {})['cost']['currency']}"


def observed_cost(run: RunEvidence, account: Account) -> float | None:
    """What all allocations cost at the price of the plan; n/a without one."""
    if account.allocated_core_s is None or run.spec is None:
        return None
    if not run.places:
        return cost_of(run.plan or {}, account.allocated_core_s / run.spec.resources.cpus)
    costs = [
        cost_of(plan_at(run, shard.name), wall_s)
        for shard in run.shards
        if (wall_s := shard_wall_s(shard)) is not None
    ]
    return None if None in costs else sum(cost or 0.0 for cost in costs)
