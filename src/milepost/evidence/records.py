"""The whole record of a closeout, for programs of this site."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from milepost import __version__
from milepost.evidence.account import Account, failures
from milepost.evidence.hours import ALLOCATED, hours, queue_json
from milepost.evidence.per_shard import shard_json
from milepost.evidence.planned import observed_cost, planned_observed
from milepost.evidence.reconcile import count
from milepost.evidence.shard_accounts import shard_accounts
from milepost.evidence.superseded import supersedes
from milepost.evidence.types import RunEvidence

if TYPE_CHECKING:
    from milepost.evidence.closing import Closing

SCHEMA = 1


def record(closing: Closing) -> dict[str, Any]:
    """Everything that was found; not for the public."""
    facts, closeout = closing.facts, closing.closeout
    run = facts.run
    accounts = shard_accounts(run)
    cpus = None if run.spec is None else run.spec.resources.cpus
    split = hours(accounts, cpus, {v.shard.name: v.waits for v in facts.verdicts})
    return {
        "schema": SCHEMA,
        "run": run.paths.run,
        "created": closing.now,
        "milepost": __version__,
        "verdict": closeout.verdict,
        "closed": closeout.is_closed,
        "partial": closing.partial,
        "accepted": [
            {"reason": a.reason, "time": a.time, "items": dict(a.items)} for a in closeout.accepted
        ],
        "superseded": None if closeout.superseded is None else asdict(closeout.superseded),
        "supersedes": supersedes(run.paths),
        "next": None if closeout.is_closed else f"milepost reconcile {run.paths.run}",
        "contract": None if run.contract is None else run.contract["digest"],
        "amendments": [dict(a) for a in facts.amendments],
        "items": [item.as_json() for item in closeout.items],
        "shards": count(facts.verdicts),
        "tasks": task_counts(run),
        "failures": failures(run),
        "best": best(closing),
        "control": [
            {"shard": c.shard, "value": c.value, "reference": c.reference, "error": c.error}
            | {"sigmas": c.sigmas, "agrees": c.agrees, "problem": c.problem}
            for c in facts.controls
        ],
        "account": account_json(facts.account)
        | {f"{h.part}_core_s": _seconds(h.observed_core_h) for h in split if h.part in ALLOCATED}
        | {"cost": observed_cost(run, facts.account)},
        "planned_observed": [
            dict(zip(("what", "planned", "observed"), row, strict=True))
            for row in planned_observed(run, facts.account)
        ],
        "hours": [asdict(part) for part in split],
        "queue": queue_json(w for v in facts.verdicts for w in v.waits),
        "shard_accounts": [one.as_json() for one in accounts],
        "per_shard": [shard_json(v) for v in facts.verdicts],
        "results": {
            "file": "results.csv",
            "columns": list(closing.table.columns),
            "rows": closing.table.row_count,
        },
        "versions": dict((run.contract or {}).get("versions", {})),
        "notes": list(run.notes),
    }


def _seconds(hours: float | None) -> float | None:
    return None if hours is None else round(hours * 3600.0, 6)


def task_counts(run: RunEvidence) -> dict[str, int]:
    shards = run.shards
    return {
        "all": sum(len(s.tasks) for s in shards),
        "done": sum(s.done for s in shards),
        "failed": sum(len(s.failed) for s in shards),
        "damaged": sum(len(s.damaged) for s in shards),
        "missing": sum(len(s.missing) for s in shards),
    }


def best(closing: Closing) -> dict[str, Any] | None:
    table = closing.table
    if table.best is None:
        return None
    return {"by": table.best_by, "row": table.best, "tied_count": table.tied_count}


def account_json(account: Account) -> dict[str, Any]:
    names = ("attempt_count", "interruption_count", "blind_count", "elapsed_s")
    more = ("allocated_core_s", "overhead_fraction", "cpu_s", "max_rss_bytes")
    last = ("checkpoint_count", "blocked_s", "durable_s")
    values = {name: getattr(account, name) for name in (*names, *more, *last)}
    return values | {"stops": dict(account.stops)}
