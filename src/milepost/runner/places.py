"""Where a shard's checkpoints are in each tier, how they are written, and the plan's interval."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from milepost.config.spec import CheckpointSpec
from milepost.durable import read_json
from milepost.paths import RunPaths

DEFAULT_INTERVAL_S = 120.0
"""When nothing is known yet."""


def checkpoint_place(tier: str, run: str, shard: str) -> str:
    """`<tier>/<run>/<shard>/ckpt`, absolute where the tier is a path; variables are expanded."""
    expanded = os.path.expandvars(tier)
    place = f"{expanded.rstrip('/')}/{run}/{shard}/ckpt"
    return place if "://" in expanded else os.path.abspath(place)


def saving_options(ckpt: CheckpointSpec) -> dict[str, Any]:
    """How generations are written and kept, as `Checkpointer.from_env` reads it."""
    return {
        "rotation": ckpt.rotation,
        "compression": ckpt.compression,
        "delta": ckpt.delta,
        "encrypt": None if ckpt.encrypt is None else asdict(ckpt.encrypt),
        "gold_every": ckpt.gold_every,
        "ttl_days": ckpt.ttl_days,
        "max_gap_s": ckpt.max_gap_s,
        "when_busy": ckpt.when_busy,
        "staging_limit_mb": ckpt.staging_limit_mb,
        "rank_timeout_s": ckpt.rank_timeout_s,
        "allow": list(ckpt.allow),
    }


def planned_interval_s(paths: RunPaths) -> float | None:
    """The interval of the plan; None before there is one."""
    value = _plan(paths).get("interval_s")
    return None if value is None else float(value)


def replanned(paths: RunPaths) -> dict[str, float | None]:
    """What the solver needs to plan its interval anew from what its checkpoints really cost: the
    MTBF of the plan (None: there is none), and the longest interval of the mode."""
    plan = _plan(paths)
    mtbf_s = (plan.get("overhead") or {}).get("mtbf_s")
    is_interruptible = plan.get("mode") == "interruptible"
    return {
        "mtbf_s": None if mtbf_s is None else float(mtbf_s),
        "interval_most_s": DEFAULT_INTERVAL_S if is_interruptible else None,
    }


def _plan(paths: RunPaths) -> dict[str, Any]:
    """The plan; empty before there is one."""
    try:
        return dict(read_json(paths.plan))
    except FileNotFoundError:
        return {}
