"""Where the core hours went, against the plan: sums over the accounts of the shards. Pure.

What is allocated splits into useful work, checkpoints, work done again, and overhead: the rest,
such as start, restore and idle cores. Waiting is beside it: nobody paid for those hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milepost.evidence.account import total
from milepost.evidence.shard_accounts import Ledger, ShardAccount
from milepost.evidence.types import QueueWait

ALLOCATED = ("useful", "checkpoint", "lost", "overhead")
PARTS = (*ALLOCATED, "waiting")


@dataclass(frozen=True, slots=True)
class Hours:
    """One part, in core hours; None is what was not planned or not measured."""

    part: str
    planned_core_h: float | None
    observed_core_h: float | None


def hours(
    accounts: Sequence[ShardAccount], cpus: int | None, waits: Mapping[str, Sequence[QueueWait]]
) -> list[Hours]:
    """The parts in the order of `PARTS`. `waits` are those of each shard in Slurm's queue."""
    planned = _parts([a.planned for a in accounts], cpus)
    seen = _parts([a.observed for a in accounts], cpus)
    first = total(_first_s(waits.get(a.shard, ())) for a in accounts)
    if first is not None and cpus is not None:
        seen["waiting"] = (seen["waiting"] or 0.0) + cpus * first / 3600.0
    return [Hours(part, planned[part], seen[part]) for part in PARTS]


def _parts(ledgers: Sequence[Ledger], cpus: int | None) -> dict[str, float | None]:
    def core_h(seconds: Iterable[float | None]) -> float | None:
        known = total(seconds)
        return None if known is None or cpus is None else cpus * known / 3600.0

    parts = {
        "useful": core_h(one.useful_s for one in ledgers),
        "checkpoint": core_h(one.checkpoint_s for one in ledgers),
        "lost": core_h(one.lost_s for one in ledgers),
        "waiting": core_h(one.waiting_s for one in ledgers),
    }
    allocated = total(one.core_h for one in ledgers)
    spent = total(parts[name] for name in ("useful", "checkpoint", "lost"))
    is_known = allocated is not None and spent is not None
    rest = max(0.0, (allocated or 0.0) - (spent or 0.0)) if is_known else None
    return parts | {"overhead": rest}


def _first_s(waits: Sequence[QueueWait]) -> float | None:
    """How long the first execution waited; what the others waited stands between attempts."""
    return max(0.0, waits[0].start_s - waits[0].submit_s) if waits else None


def queue_json(waits: Iterable[QueueWait]) -> dict[str, Any]:
    """All waits together, until eligible and from then on; None where nobody measured."""
    known = list(waits)
    held, pending = ([getattr(w, n) for w in known] for n in ("held_s", "pending_s"))
    return {
        "executions": len(known),
        "held_s": total(held),
        "pending_s": total(pending),
        "longest_held_s": max((s for s in held if s is not None), default=None),
        "longest_pending_s": max((s for s in pending if s is not None), default=None),
    }
