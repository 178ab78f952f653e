"""Where a shard's checkpoints are in each tier, and how they are written."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from milepost.config.spec import CheckpointSpec


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
