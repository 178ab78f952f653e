"""What the record and the report say about each shard: verdict, counts, attempts, checkpoints,
waits. Pure."""

from __future__ import annotations

from typing import Any

from milepost.clock import iso
from milepost.evidence.account import how, lost_s, shard_wall_s, total
from milepost.evidence.reconcile import ShardVerdict
from milepost.evidence.types import AttemptEvidence, QueueWait

MOST_TIMES = 200
"""Of more checkpoints of a shard an even choice of times is recorded; all are counted."""


def shard_json(verdict: ShardVerdict) -> dict[str, Any]:
    """One shard as plain data."""
    shard = verdict.shard
    lost = lost_s(shard)
    times = [c.time for c in shard.checkpoints]
    step = -(-len(times) // MOST_TIMES) or 1
    return {
        "shard": shard.name,
        "verdict": str(verdict.verdict),
        "reason": verdict.decision.reason,
        "tasks": len(shard.tasks),
        "done": shard.done,
        "failed": len(shard.failed) + len(shard.damaged),
        "missing": len(shard.missing),
        "next_action": verdict.next_action,
        "command": verdict.command,
        "wall_s": shard_wall_s(shard),
        "lost_s": total(lost.values()),
        "held_s": total(w.held_s for w in verdict.waits),
        "pending_s": total(w.pending_s for w in verdict.waits),
        "attempts": [_attempt(a, lost.get(a.number)) for a in shard.attempts],
        "checkpoints": {"count": len(times), "times": times[::step]},
        "waits": [_wait(w) for w in verdict.waits],
    }


def _attempt(attempt: AttemptEvidence, lost: float | None) -> dict[str, Any]:
    return {
        "attempt": attempt.number,
        "started": attempt.started,
        "ended": attempt.ended,
        "last_sign": attempt.last_sign,
        "how": how(attempt),
        "exit_code": attempt.exit_code,
        "useful_s": attempt.useful_s,
        "lost_s": lost,
    }


def _wait(wait: QueueWait) -> dict[str, Any]:
    eligible = None if wait.eligible_s is None else iso(wait.eligible_s)
    return {
        "job": wait.job_id,
        "submitted": iso(wait.submit_s),
        "eligible": eligible,
        "started": iso(wait.start_s),
        "held_s": wait.held_s,
        "pending_s": wait.pending_s,
    }
