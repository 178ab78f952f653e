"""Room in scratch: before a new checkpoint is taken, a disk that is nearly full is drained.

What the tiers have not got yet is sent first; then all but the newest generation may go, marks of
a person and what is still being sent excepted; at last damaged generations kept as evidence.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from milepost.checkpoint import leftovers
from milepost.checkpoint.prune import prune
from milepost.checkpoint.retention import Retention
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.uploader import Uploader
from milepost.errors import DataError

FULL_FRACTION = 0.85
"""Of the file system, with the next checkpoint counted as large as the last one."""


class Usage(NamedTuple):
    """Bytes of a file system, as shutil.disk_usage gives them."""

    total: int
    used: int
    free: int


@dataclass(slots=True)
class Room:
    """Looks at the disk of a store, and drains and prunes when it is nearly full.

    `time_left_s` bounds the waiting for uploads. `drain_count` is how often it was needed.
    """

    store: CheckpointStore
    rules: Retention
    uploader: Callable[[], Uploader | None]
    time_left_s: Callable[[], float | None] = lambda: None
    usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage
    drain_count: int = 0

    def make(self) -> tuple[str, ...]:
        """Make room if the next checkpoint would fill the disk; returns what was deleted."""
        if not self._is_nearly_full():
            return ()
        self.drain_count += 1
        uploader = self.uploader()
        if uploader is not None:
            uploader.wait(self.time_left_s())
        gone = prune(self.store, self.rules, hold=_held(uploader))
        if self._is_nearly_full():
            rules = replace(self.rules, rotation=1)
            if uploader is not None:
                rules = replace(rules, gold_every=None)  # the tiers keep them
            gone += prune(self.store, rules, hold=_held(uploader))
        if self._is_nearly_full():
            gone += leftovers.remove_damaged(self.store.folder)
        print(f"milepost: {self.store.folder}: {self._report(gone)}", file=sys.stderr)
        return gone

    def _is_nearly_full(self) -> bool:
        usage = self._look()
        return usage.used + self._next_bytes() >= FULL_FRACTION * usage.total

    def _look(self) -> Usage:
        folder = self.store.folder.absolute()
        while not folder.exists():
            folder = folder.parent
        return Usage(*self.usage(folder))

    def _next_bytes(self) -> int:
        for name in self.store.generations():
            try:
                return self.store.manifest(name).size_bytes
            except DataError:
                continue
        return 0

    def _report(self, gone: tuple[str, ...]) -> str:
        usage = self._look()
        what = f"deleted {', '.join(gone)}" if gone else "nothing could be deleted"
        return f"the disk is nearly full; {what}; {usage.used / usage.total:.0%} are used now"


def _held(uploader: Uploader | None) -> frozenset[str]:
    return frozenset() if uploader is None else uploader.held()
