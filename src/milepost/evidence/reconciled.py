"""Is what was launched before accounted for? Asked before anything new is launched on top of it.

`reconcile.csv` says what was known of each shard. An attempt that began or ended since then, and
is not at work, is a launch that nobody has looked at.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from milepost.errors import DataError, Refused
from milepost.lease import read_holder
from milepost.model import Verdict
from milepost.paths import RunPaths
from milepost.shardtable import shard_names

NAMED = 3
_OPEN = (Verdict.RUNNING, Verdict.UNKNOWN)
"""Verdicts after which the shard has to be looked at again."""


def refuse_unreconciled(paths: RunPaths) -> None:
    """Raise Refused when attempts of an earlier launch are not accounted for."""
    reasons = list(unreconciled(paths))
    if reasons:
        more = f"; and {len(reasons) - NAMED} more" if len(reasons) > NAMED else ""
        raise Refused(
            f"an earlier launch of run {paths.run} is not reconciled:"
            f" {'; '.join(reasons[:NAMED])}{more}",
            where=paths.reconcile,
            fix=f"milepost reconcile {paths.run}; follow what it says, then launch again",
        )


def unreconciled(paths: RunPaths) -> Iterator[str]:
    """What is not accounted for, one reason a shard; what is at work right now is no reason."""
    known = _known(paths.reconcile)
    folder = paths.work / "shards"
    in_table = set(shard_names(paths.frozen_shards))
    for live in sorted(folder.iterdir()) if folder.is_dir() else ():
        if in_table and live.name not in in_table:
            continue  # of an older cut: its tasks are in other shards now
        attempts = [p for p in live.glob("attempts/*.json") if p.stem.isdigit()]
        if not attempts or _is_at_work(live):
            continue
        verdict, count = known.get(live.name, ("", 0))
        newest = max(int(p.stem) for p in attempts)
        if count != len(attempts):
            yield f"shard {live.name} has had attempt {newest} since"
        elif verdict in _OPEN:
            yield f"shard {live.name} was {verdict} when last looked at, and is not at work"


def _known(path: Path) -> dict[str, tuple[str, int]]:
    """Shard -> its verdict and its number of attempts, as they were last written down."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = csv.DictReader(stream)
            return {r["shard"]: (r["verdict"], int(r["attempts"])) for r in rows}
    except FileNotFoundError:
        return {}
    except (KeyError, TypeError, ValueError):
        return {}  # damaged: it accounts for nothing, and reconcile writes it anew


def _is_at_work(live: Path) -> bool:
    try:
        holder = read_holder(live / "lease.json")
        return holder is not None and holder.is_alive() is True
    except (DataError, ValueError):
        return False
