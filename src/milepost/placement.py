"""Where each shard of a run was placed, and what the plan says about that place.

The shard table freezes profile and mode of a shard; the plan says what follows from them
(interval, walltime, price, partition), and may be made anew. What a plan does not mention any
more is still in the submission.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from milepost.paths import RunPaths
from milepost.shardtable import Place, read_places

Record = Mapping[str, Any]
"""An entry of the block `placement` of a plan."""


def find_record(records: Any, place: Place) -> Record | None:
    """The entry for a profile and mode; None when there is none."""
    for one in records or ():
        if (one.get("profile"), one.get("mode")) == place:
            found: Record = one
            return found
    return None


def record_of_place(paths: RunPaths, place: Place) -> Record | None:
    """What the plan, or else the submission, says about a place; None: nothing."""
    planned = find_record(_read(paths.plan).get("placement"), place)
    return planned or find_record(_read(paths.frozen_submission).get("placements"), place)


def record_of_shard(paths: RunPaths, shard: str) -> Record | None:
    """The same for the place of a shard; None for one that was placed nowhere in particular."""
    place = places_of(paths).get(shard)
    return None if place is None or place[1] is None else record_of_place(paths, place)


def places_of(paths: RunPaths) -> Mapping[str, Place]:
    """Profile and mode of every shard of the frozen table."""
    return _places(paths.frozen_shards, _stamp(paths.frozen_shards))


def plan_of_shard(paths: RunPaths, shard: str) -> dict[str, Any]:
    """The plan as it is for one shard: the interval, mode and failures of its place.

    Empty before there is a plan.
    """
    plan = dict(_read(paths.plan))
    record = record_of_shard(paths, shard) if plan else None
    if record is None:
        return plan
    plan |= {key: record[key] for key in ("profile", "mode", "interval_s") if key in record}
    if record.get("mtbf_s") is not None:
        plan["overhead"] = {**(plan.get("overhead") or {}), "mtbf_s": record["mtbf_s"]}
    if plan.get("mtbf") and record.get("believed"):
        plan["mtbf"] = {
            **plan["mtbf"],
            "believed": {**(plan["mtbf"].get("believed") or {}), **record["believed"]},
        }
    return plan


Stamp = tuple[int, int] | None


def _stamp(path: Path) -> Stamp:
    """Changes with the file: a head asks for thousands of shards, and reads each file once."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _read(path: Path) -> Record:
    return _json(path, _stamp(path))


@lru_cache(maxsize=16)
def _json(path: Path, stamp: Stamp) -> Record:
    if stamp is None:
        return {}
    found: Record = json.loads(path.read_text(encoding="utf-8"))
    return found


@lru_cache(maxsize=8)
def _places(path: Path, stamp: Stamp) -> Mapping[str, Place]:
    return {} if stamp is None else read_places(path)
