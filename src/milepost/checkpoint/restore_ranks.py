"""Ranks restore together: rank 0 finds a generation, each rank reads and verifies its own file.

Rank 0 looks in a thread, since fetching from another tier may take long; meanwhile it tells the
others every second that it lives. A generation that one rank cannot read is passed over by all.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from milepost.checkpoint.crypt import UserKey
from milepost.checkpoint.legal import Wanted
from milepost.checkpoint.manifest import Manifest
from milepost.checkpoint.ranks import Ranks
from milepost.checkpoint.restore import Redecompose, Saved, load_cut, restore
from milepost.checkpoint.search import Found, find_generation
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote
from milepost.errors import DataError, MilepostError, Refused, StorageError

_LIFE_S = 1.0
_WAIT, _TRY, _END = "wait", "try", "end"
_CLASSES: dict[int, type[MilepostError]] = {
    kind.exit_code: kind for kind in (StorageError, DataError, Refused)
}


def restore_together(
    store: CheckpointStore,
    wanted: Wanted,
    ranks: Ranks,
    remotes: Sequence[Remote] = (),
    key: UserKey | None = None,
    redecompose: Redecompose | None = None,
) -> Saved | None:
    """`restore` for ranks; each gets its own state of the same generation, or all raise."""
    if ranks.size == 1:
        return restore(store, wanted, remotes, key, redecompose)
    start = time.monotonic()
    team = _Team(store, wanted, ranks, key, redecompose)
    saved = team.lead(remotes) if ranks.rank == 0 else team.follow()
    return None if saved is None else replace(saved, seconds=time.monotonic() - start)


class _Team:
    def __init__(
        self,
        store: CheckpointStore,
        wanted: Wanted,
        ranks: Ranks,
        key: UserKey | None,
        redecompose: Redecompose | None,
    ) -> None:
        self._store, self._wanted, self._ranks = store, wanted, ranks
        self._key, self._redecompose = key, redecompose

    def lead(self, remotes: Sequence[Remote]) -> Saved | None:
        """Rank 0."""
        asked: queue.SimpleQueue[Manifest | None] = queue.SimpleQueue()
        answers: queue.SimpleQueue[Saved | Exception] = queue.SimpleQueue()
        ends: list[Found[Saved] | BaseException | None] = []

        def use(manifest: Manifest) -> Saved:
            asked.put(manifest)
            answer = answers.get()
            if isinstance(answer, Exception):
                raise answer
            return answer

        def look() -> None:
            try:
                ends.append(find_generation(self._store, self._wanted, use, remotes))
            except BaseException as error:  # noqa: BLE001 - raised below, on every rank
                ends.append(error)
            asked.put(None)

        threading.Thread(target=look, name="milepost-restore", daemon=True).start()
        try:
            while (manifest := self._next(asked)) is not None:
                self._ranks.agree([_TRY, manifest.name])
                answers.put(self._load_together(manifest))
        except BaseException as error:
            answers.put(StorageError(f"the ranks lost each other: {error}"))  # ends the thread
            raise
        (end,) = ends
        self._ranks.agree([_END, _as_json(end)])
        if isinstance(end, BaseException):
            raise end
        if end is None:
            return None
        return replace(end.result, tier=end.tier, damages=end.damages, lost=end.lost)

    def follow(self) -> Saved | None:
        """The other ranks."""
        saved: Saved | Exception | None = None
        while True:
            what, value = self._ranks.agree(None)
            if what == _TRY:
                saved = self._load_together(None, value)
            elif what == _END:
                break
        if value is not None:
            raise _CLASSES.get(value["code"], StorageError)(value["text"])
        return None if isinstance(saved, Exception) else saved

    def _next(self, asked: queue.SimpleQueue[Manifest | None]) -> Manifest | None:
        while True:
            try:
                return asked.get(timeout=_LIFE_S)
            except queue.Empty:
                self._ranks.agree([_WAIT, None])

    def _load_together(self, manifest: Manifest | None, name: str = "") -> Saved | Exception:
        """This rank's state, or why it, or another rank, cannot have it."""
        saved: Saved | Exception
        try:
            manifest = manifest or self._store.manifest(name)
            saved = load_cut(self._store, manifest, self._wanted, self._key, self._redecompose)
        except Exception as error:  # noqa: BLE001 - told to every rank
            saved = error
        told = f"rank {self._ranks.rank}: {saved}" if isinstance(saved, Exception) else None
        other = self._ranks.agree(told)
        if other is not None and not isinstance(saved, Exception):
            return DataError(other)
        return saved


def _as_json(end: Any) -> dict[str, Any] | None:
    """What the other ranks raise; None when there is nothing to raise."""
    if not isinstance(end, BaseException):
        return None
    return {"code": getattr(end, "exit_code", None), "text": f"rank 0 cannot restore: {end}"}
