"""Grouped durability: artifacts first, then the journal rows that speak of them.

Rows are handed to the kernel at once, which a killed process survives. What a power cut could
take is made durable in groups, at most a second apart, by a thread, so that no task waits for it.
"""

from __future__ import annotations

import threading
from pathlib import Path

from milepost.durable import fsync_directory, fsync_file
from milepost.journal import JournalWriter

GROUP_S = 1.0


class GroupSync:
    """Between `add` and durable lie at most `GROUP_S` seconds; `flush` waits until it is so.

    An error of the thread surfaces at the next `add` or `flush`: a journal that cannot be made
    durable ends the shard.
    """

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._files: list[Path] = []
        self._folders: set[Path] = set()
        self._dirty = False
        self._closing = False
        self._error: BaseException | None = None
        self._condition = threading.Condition()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="group-sync", daemon=True)
        self._thread.start()

    def add(self, files: list[Path], folder: Path | None = None) -> None:
        """Say that rows were appended, and which files must be durable before them."""
        self._raise_error()
        with self._condition:
            self._files += files
            if folder is not None:
                self._folders.add(folder)
            if not self._dirty:
                self._dirty = True
                self._condition.notify()

    def flush(self) -> None:
        """Return when all that was added is durable."""
        self._sync_once()
        self._raise_error()

    def close(self) -> None:
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join()
        self.flush()

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._dirty and not self._closing:
                    self._condition.wait()
                if self._closing:
                    return
                self._condition.wait_for(lambda: self._closing, timeout=GROUP_S / 2)
            try:
                self._sync_once()
            except BaseException as error:  # noqa: BLE001 - handed to the main thread
                self._error = error
                return

    def _sync_once(self) -> None:
        with self._lock:
            with self._condition:
                files, self._files = self._files, []
                folders, self._folders = self._folders, set()
                dirty, self._dirty = self._dirty, False
            for path in files:
                fsync_file(path)
            for folder in folders | {path.parent for path in files}:
                fsync_directory(folder)
            if dirty:
                self._journal.sync()
