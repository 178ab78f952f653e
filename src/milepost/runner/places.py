"""Where a shard's checkpoints are in each tier, and the interval that the plan gave them."""

from __future__ import annotations

import os

from milepost.durable import read_json
from milepost.paths import RunPaths

DEFAULT_INTERVAL_S = 120.0
"""When nothing is known yet."""


def checkpoint_place(tier: str, run: str, shard: str) -> str:
    """`<tier>/<run>/<shard>/ckpt`, absolute where the tier is a path; variables are expanded."""
    expanded = os.path.expandvars(tier)
    place = f"{expanded.rstrip('/')}/{run}/{shard}/ckpt"
    return place if "://" in expanded else os.path.abspath(place)


def planned_interval_s(paths: RunPaths) -> float | None:
    """The interval of the plan; None before there is one."""
    try:
        value = read_json(paths.plan)["interval_s"]
    except FileNotFoundError:
        return None
    return None if value is None else float(value)
