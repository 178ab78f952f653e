"""Which interval an attempt uses: planned anew from what the run went through so far.

Within the contract's bounds: a number in the contract stays, and in interruptible mode no interval
is longer than 120 s.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from milepost.checkpoint.policies import optimal_interval_s
from milepost.config.spec import CheckpointSpec
from milepost.paths import RunPaths
from milepost.placement import places_of, plan_of_shard
from milepost.runner.observed import attempts_of_run

DEFAULT_INTERVAL_S = 120.0
"""When nothing is known, and the longest interval in interruptible mode."""
_SAMPLE = 50
"""So many of the latest checkpoints tell what one costs."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Mean seconds that checkpoints of this shard blocked the work, and the longest time that one
    took to become durable; None is not measured."""

    blocked_s: float | None = None
    durable_s: float | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """What an attempt plans its checkpoints with; seconds.

    `mtbf_s` None: nothing is known of failures, or the contract states the interval. `most_s` is
    the longest interval of the mode. `interruptions` of the run went into it, over `exposure_s`.
    """

    interval_s: float
    source: str
    mtbf_s: float | None = None
    mtbf_source: str | None = None
    t_ckpt_s: float | None = None
    most_s: float | None = None
    interruptions: int | None = None
    exposure_s: float | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read_cost(rows: Sequence[Mapping[str, Any]]) -> Cost:
    """What the latest of a shard's checkpoints cost, from the data of their journal rows."""
    latest = rows[-_SAMPLE:]
    blocked = [one["blocked_s"] for one in latest if one.get("blocked_s") is not None]
    durable = [one["durable_s"] for one in latest if one.get("durable_s") is not None]
    return Cost(math.fsum(blocked) / len(blocked) if blocked else None, max(durable, default=None))


def plan_interval(ckpt: CheckpointSpec, paths: RunPaths, shard: str, cost: Cost) -> Planned:
    """The interval for an attempt at `shard` that starts now."""
    plan = plan_of_shard(paths, shard)
    most_s = DEFAULT_INTERVAL_S if plan.get("mode") == "interruptible" else None
    if ckpt.interval_s is not None:
        source = "stated in the config (checkpoint.interval_seconds)"
        return Planned(_bounded(ckpt.interval_s, most_s, None), source, most_s=most_s)
    from milepost.planner.updated import update

    found = update(_block(plan), attempts_of_run(paths, shard, _neighbours(paths, shard)))
    t_ckpt_s = cost.blocked_s
    if t_ckpt_s is None:
        t_ckpt_s = (plan.get("overhead") or {}).get("t_ckpt_s")
    seconds = float(plan.get("interval_s") or DEFAULT_INTERVAL_S)
    source = str(plan.get("interval_source") or "default, there is no plan")
    is_new = bool(found.interruptions) or cost.blocked_s is not None
    if is_new and found.mtbf_s is not None and t_ckpt_s is not None:
        seconds = optimal_interval_s(t_ckpt_s, found.mtbf_s)
        source = "computed from checkpoints and interruptions so far"
    return Planned(
        interval_s=_bounded(seconds, most_s, cost.durable_s),
        source=source,
        mtbf_s=found.mtbf_s,
        mtbf_source=found.source,
        t_ckpt_s=t_ckpt_s,
        most_s=most_s,
        interruptions=found.interruptions,
        exposure_s=found.exposure_s,
    )


def _neighbours(paths: RunPaths, shard: str) -> Collection[str] | None:
    """The shards at the same place, where a run is at several: spot nodes fail for reasons of
    their own. None: all of them."""
    places = places_of(paths)
    mine = places.get(shard)
    if mine is None or all(place == mine for place in places.values()):
        return None
    return {name for name, place in places.items() if place == mine}


def _bounded(seconds: float, most_s: float | None, durable_s: float | None) -> float:
    """Never more often than a checkpoint takes to become durable: the queue would grow."""
    capped = seconds if most_s is None else min(seconds, most_s)
    return max(capped, durable_s or 0.0)


def _block(plan: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What the plan knew of failures; one that was made before there was such a block tells its
    MTBF alone."""
    mtbf_s = (plan.get("overhead") or {}).get("mtbf_s")
    if plan.get("mtbf") is None and mtbf_s is not None:
        return {"believed": {"stated_h": float(mtbf_s) / 3600.0}}
    return plan.get("mtbf")
