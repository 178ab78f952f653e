"""What a smoke test measures: seconds, bytes and memory, for the plan. None is what it did not show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from milepost.clock import epoch
from milepost.config.contract import load_contract
from milepost.journal import CHECKPOINT, DONE, TASK, read_rows
from milepost.launch.slice import Slice
from milepost.model import Shard, WorkKind


def nothing_measured() -> dict[str, Any]:
    """Every key of `measured`, without a value."""
    names = ("task_s", "startup_s", "t_ckpt_s", "durable_s", "ckpt_bytes", "restore_s")
    return dict.fromkeys((*names, "max_rss_bytes", "step_s"))


def measure(calm: Slice, seconds: Sequence[float]) -> dict[str, Any]:
    """Seconds, bytes and memory of an undisturbed slice; None for what it did not show."""
    rows = [row for shard in calm.shards for row in read_rows(calm.paths.shard(shard.name).journal)]
    tasks = [row for row in rows if row.event == TASK and row.status == DONE]
    checkpoints = [row.data for row in rows if row.event == CHECKPOINT]
    return nothing_measured() | {
        "task_s": _sample([row.seconds for row in tasks]),
        "startup_s": _startup(calm, seconds),
        "t_ckpt_s": _sample([data.get("blocked_s") for data in checkpoints]),
        "durable_s": _largest([data.get("durable_s") for data in checkpoints]),
        "ckpt_bytes": _largest([data.get("bytes") for data in checkpoints]),
        "max_rss_bytes": _largest([row.data.get("max_rss_bytes") for row in tasks]),
        "step_s": _step_seconds(calm),
    }


def restore_seconds(rough: Slice) -> float | None:
    """How long it took at most to read a checkpoint back, as the resumed attempts say."""
    notes = [rough.attempt(shard, 2).get("restored") for shard in rough.shards]
    known = [note.get("seconds") for note in notes if isinstance(note, Mapping)]
    longest = _largest(known)
    return None if longest is None else float(longest)


def _step_seconds(calm: Slice) -> float | None:
    """Seconds of a step: between two checkpoints, without the first one's cost, by the steps
    between them. The times are those at which both were durable."""
    found = []
    for shard in calm.shards:
        journal = read_rows(calm.paths.shard(shard.name).journal)
        rows = [row.data for row in journal if row.event == CHECKPOINT]
        for before, after in pairwise(rows):
            steps = (after.get("step") or 0) - (before.get("step") or 0)
            if steps > 0 and before.get("created") and after.get("created"):
                span_s = epoch(after["created"]) - epoch(before["created"])
                found.append(max(0.0, span_s - (before.get("blocked_s") or 0.0)) / steps)
    return median(found) if found else None


def _sample(values: Sequence[float | None]) -> dict[str, float | int] | None:
    known = sorted(v for v in values if v is not None)
    if not known:
        return None
    p95 = known[min(len(known) - 1, math.ceil(0.95 * len(known)) - 1)]
    return {"median": median(known), "p95": p95, "n": len(known)}


def _largest(values: Sequence[Any]) -> Any:
    return max((v for v in values if v is not None), default=None)


def _startup(calm: Slice, seconds: Sequence[float]) -> float | None:
    """Seconds of a shard's process that were not work: wall time less the busiest slot's share."""
    shares = []
    for shard, wall_s in zip(calm.shards, seconds, strict=True):
        useful = calm.attempt(shard, 1).get("useful_s")
        if isinstance(useful, (int, float)):
            shares.append(max(0.0, wall_s - useful / max(1, _slots(calm, shard))))
    return median(shares) if shares else None


def _slots(calm: Slice, shard: Shard) -> int:
    spec = load_contract(calm.paths).spec
    if spec.work.kind is not WorkKind.BATCH:
        return 1
    return min(len(shard.tasks), spec.resources.gpus or spec.resources.cpus)
