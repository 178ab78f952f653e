"""What became of the attempts of a run so far: what its failures are counted from.

A run may have thousands of shards, each of which asks when it starts. So what all of them tell is
kept for a minute in `work/<run>/observed.json`; what the asking shard itself went through is
always read anew. The file is only a shorter way to the attempts: it may be removed at any time.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from milepost.clock import epoch, iso
from milepost.durable import read_json, write_json
from milepost.errors import DataError
from milepost.lease import Holder, attempt_records, read_holder, update_attempt
from milepost.paths import RunPaths, ShardPaths
from milepost.runner.held import SILENT_S

FRESH_S = 60.0
FEW = 64
"""So many shards are read in a moment: nothing is kept."""
_KEYS = ("attempt", "started", "ended", "stop", "then", "slurm_job_id", "running", "last_sign")

Record = dict[str, Any]


def attempts_of_run(
    paths: RunPaths, shard: str | None = None, among: Collection[str] | None = None
) -> list[Record]:
    """The attempts of all shards, or those `among` them, oldest first in each; those of `shard` in
    any case as of now.

    One that is still at work has `running`; one that never said how it ended has `last_sign`,
    when it was last seen, and what Slurm said about it if that is known.
    """
    folder = paths.work / "shards"
    names = sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []
    known = {} if len(names) <= FEW else _kept(paths)
    if len(names) > FEW and not known:
        known = {name: _short(_readable(paths.shard(name))) for name in names}
        write_json(_place(paths), known)
    return [
        record
        for name in names
        if among is None or name in among
        for record in (
            known[name] if name in known and name != shard else _short(_readable(paths.shard(name)))
        )
    ]


def _readable(shard: ShardPaths) -> list[Record]:
    """A damaged record must not keep other shards from starting: `reconcile` names it, and its
    shard does not count here."""
    try:
        return attempts_of_shard(shard)
    except DataError:
        return []


def attempts_of_shard(shard: ShardPaths) -> list[Record]:
    """The records of a shard's attempts as `attempts_of_run` gives them, whole."""
    records = attempt_records(shard.live)
    for record in records:
        if record.get("ended") is None:
            _complete(shard, record, is_newest=record is records[-1])
    return records


def _complete(shard: ShardPaths, record: Record, *, is_newest: bool) -> None:
    number = int(record["attempt"])
    said = shard.attempts / f"{number}.slurm.json"
    if said.is_file():
        record |= read_json(said)
    holder = read_holder(shard.lease) if is_newest else None
    if holder is not None and _is_at_work(holder):
        record["running"] = True
    if record.get("last_sign") is None:
        record["last_sign"] = iso(last_sign_s(shard, record, is_newest=is_newest))


def _is_at_work(holder: Holder) -> bool:
    """A heart on another machine that has been silent for long has stopped."""
    is_alive = holder.is_alive()
    return holder.age_s() < SILENT_S if is_alive is None else is_alive


def last_sign_s(shard: ShardPaths, record: Mapping[str, Any], *, is_newest: bool) -> float:
    """When an attempt that never said how it ended was last seen, in seconds since the epoch.

    Its log tells, and for the newest one the journal and the heartbeat: those belong to it alone.
    """
    signs = [epoch(record["started"])]
    files = [shard.log(int(record["attempt"]))]
    if is_newest:
        files.append(shard.journal)
        signs.append(_heartbeat_s(shard.lease, record))
    return max([*signs, *(path.stat().st_mtime for path in files if path.exists())])


def note_last_sign(shard: ShardPaths, dead: Holder) -> None:
    """Write into the record of a dead attempt when it was last seen, while that can be told.

    Called by its successor, before it writes to the journal: nobody else does any more.
    """
    path = shard.attempt(dead.attempt)
    record = read_json(path)
    if record.get("ended") is None and record.get("last_sign") is None:
        seen_s = max(epoch(dead.heartbeat), last_sign_s(shard, record, is_newest=True))
        update_attempt(path, last_sign=iso(seen_s))


def _heartbeat_s(lease: Path, record: Mapping[str, Any]) -> float:
    try:
        kept = read_json(lease)
    except (FileNotFoundError, DataError):
        return 0.0  # nobody's, or torn between two holders: the start is the last sign
    return epoch(kept["heartbeat"]) if kept.get("token") == record.get("token") else 0.0


def _short(records: list[Record]) -> list[Record]:
    """Only what failures are counted from."""
    found = []
    for record in records:
        short = {key: record[key] for key in _KEYS if record.get(key) is not None}
        finding = record.get("finding")
        if finding:
            short["finding"] = {key: finding.get(key) for key in ("action", "subclass")}
        found.append(short)
    return found


def _place(paths: RunPaths) -> Path:
    return paths.work / "observed.json"


def _kept(paths: RunPaths) -> dict[str, list[Record]]:
    """What was kept less than a minute ago; nothing otherwise."""
    place = _place(paths)
    try:
        if abs(time.time() - place.stat().st_mtime) > FRESH_S:
            return {}
        return dict(read_json(place))
    except (FileNotFoundError, DataError):
        return {}
