"""A person asks a running application for a checkpoint: by a file beside its generations.

Works from any node that sees the folder, and needs no process number. The application takes the
file away when it begins to save; without a taker the asker takes it back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from milepost.checkpoint.manifest import Manifest
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.verify import verify_generation
from milepost.durable import create_exclusive
from milepost.errors import DataError, StorageError

FILE = "save.request"
SAVE, STOP = "asked for", "asked to stop"
LOOK_S = 0.5
"""The application looks this often."""
_POLL_S = 0.1


@dataclass(slots=True)
class Requests:
    """The application's side; `asked` costs nothing most of the time."""

    folder: Path
    next_look: float = 0.0

    def asked(self) -> str | None:
        """`SAVE`, `STOP` or None; what is asked is taken away by `taken`."""
        now = time.monotonic()
        if now < self.next_look:
            return None
        self.next_look = now + LOOK_S
        try:
            text = (self.folder / FILE).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        return STOP if text == STOP else SAVE

    def taken(self) -> None:
        """The save that was asked for begins."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / FILE).unlink()


def force(
    store: CheckpointStore,
    *,
    stop: bool = False,
    timeout_s: float = 600.0,
    sleep: Callable[[float], None] = time.sleep,
) -> Manifest:
    """Ask for a checkpoint and wait until it is committed; returns its manifest.

    With `stop` the application ends after it with 75. Errors: StorageError when nobody took the
    request, or nothing was committed, within `timeout_s`.
    """
    before = set(store.names())
    path = store.folder / FILE
    create_exclusive(path, STOP if stop else SAVE)  # one that another person left serves as well
    deadline = time.monotonic() + timeout_s
    while True:
        found = _new(store, before) if not path.exists() else None
        if found is not None:
            return found
        if time.monotonic() > deadline:
            break
        sleep(_POLL_S)
    is_taken = not path.exists()
    path.unlink(missing_ok=True)
    raise StorageError(
        f"no checkpoint was committed within {timeout_s:g} s"
        if is_taken
        else f"no application took the request within {timeout_s:g} s",
        where=store.folder,
        fix="look whether it runs and its log; a step longer than that needs a longer --timeout",
    )


def _new(store: CheckpointStore, before: set[str]) -> Manifest | None:
    """The newest generation that was not there before, if it is whole."""
    for name in store.generations():
        if name in before:
            return None
        try:
            if not verify_generation(store, name, deep=False):
                return store.manifest(name)
        except (DataError, FileNotFoundError):
            continue  # rotation took it away
    return None
