"""What an interruption cost: the work that an attempt did after the checkpoint it goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from milepost.checkpoint.store import CheckpointStore
from milepost.clock import epoch
from milepost.durable import read_json
from milepost.errors import DataError
from milepost.lease import update_attempt
from milepost.paths import ShardPaths

Record = Mapping[str, Any]


def previous_record(paths: ShardPaths, number: int) -> Record | None:
    """The record of the attempt before `number`; None when that is the first one."""
    if number < 2:
        return None
    record: Record = read_json(paths.attempt(number - 1))
    return record


def restored_note(paths: ShardPaths, number: int) -> Path:
    """Where the application of that attempt says what it restored, as soon as it has."""
    return paths.attempts / f"{number}.restored.json"


def note_restored(paths: ShardPaths, number: int, store: CheckpointStore) -> Record | None:
    """What the attempt restored, and what the one before it had lost by that, into its record.

    None when the application has not said so, or not yet.
    """
    path = restored_note(paths, number)
    if not path.exists():
        return None
    note: dict[str, Any] = read_json(path)
    before = previous_record(paths, number)
    durable_s = durable_seconds(store, note["generation"])
    note["lost_s"] = lost_seconds(before, note, durable_s, began_seconds(paths, before))
    update_attempt(paths.attempt(number), restored=note)
    return note


def note_restored_before(paths: ShardPaths, number: int, store: CheckpointStore) -> None:
    """The same for the attempt before, if it was killed before its runner read the note."""
    record = previous_record(paths, number)
    if record is not None and record.get("restored") is None:
        note_restored(paths, number - 1, store)


def lost_seconds(
    record: Record | None, note: Record, durable_s: float | None, began_s: float
) -> float | None:
    """Seconds of the attempt before that are done again; `note` says what was restored.

    From the moment the restored state was that of the work, `durable_s` before it was a
    generation, to the last sign of that attempt; from `began_s`, when that attempt itself began to
    work, where the state is older: what was lost before is counted already. Nothing where it
    stopped at a durable checkpoint and that is the one; None when it is not known when it was last
    seen.
    """
    passed_over_s = note.get("lost_s")
    if record is None or (record.get("is_saved") and not passed_over_s):
        return None if record is None else passed_over_s
    last = record.get("ended") or record.get("last_sign")
    if last is None:
        return passed_over_s
    taken_s = epoch(note["created"]) - (durable_s or 0.0)
    return max(0.0, epoch(last) - max(taken_s, began_s))


def began_seconds(paths: ShardPaths, record: Record | None) -> float:
    """When an attempt began to work: when it had restored, else when it started."""
    if record is None:
        return 0.0
    note = restored_note(paths, record["attempt"])
    return note.stat().st_mtime if note.exists() else epoch(record["started"])


def durable_seconds(store: CheckpointStore, generation: str) -> float | None:
    """How long that generation took to become durable; None when that cannot be read here."""
    try:
        return store.manifest(generation).metrics.durable_s
    except (DataError, FileNotFoundError):
        return None


def note_all_lost(paths: ShardPaths, number: int) -> None:
    """The attempt before left no checkpoint at all, nor any before it: all it did is done again.

    Written into its record, unless that says so already.
    """
    record = previous_record(paths, number)
    if record is None or record.get("lost_s") is not None:
        return
    last = record.get("ended") or record.get("last_sign")
    if last is not None:
        lost_s = max(0.0, epoch(last) - epoch(record["started"]))
        update_attempt(paths.attempt(number - 1), lost_s=lost_s)
