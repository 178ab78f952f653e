"""A thread that sends new generations to the warm tier, newest first, and prunes there."""

from __future__ import annotations

import threading
from collections.abc import Callable

from milepost.checkpoint.prune import prune_remote
from milepost.checkpoint.retention import Retention
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote, upload_generation
from milepost.errors import StorageError
from milepost.model import FileProof


class Uploader:
    """Sends what `offer` names; only the newest offer waits, older ones are overtaken.

    A generation is held (see `held`) while it is sent, so that rotation leaves it alone. The
    first failure is kept in `error`; later offers are tried all the same.
    """

    def __init__(
        self,
        store: CheckpointStore,
        remote: Remote,
        *,
        rules: Retention | None = None,
        fence: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._remote, self._rules, self._fence = store, remote, rules, fence
        self._condition = threading.Condition()
        self._waiting: str | None = None
        self._sending: str | None = None
        self._is_closed = False
        self.error: BaseException | None = None
        self.sent: dict[str, list[FileProof]] = {}
        self._thread = threading.Thread(target=self._run, name="milepost-upload", daemon=True)
        self._thread.start()

    def offer(self, generation: str) -> None:
        """Send `generation` as soon as the one under way is done."""
        with self._condition:
            self._waiting = generation
            self._condition.notify_all()

    def held(self) -> frozenset[str]:
        """Generations that must not be deleted now."""
        with self._condition:
            return frozenset(name for name in (self._waiting, self._sending) if name)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until everything offered is sent or failed; False when the time is over."""
        with self._condition:
            return self._condition.wait_for(
                lambda: self._waiting is None and self._sending is None, timeout_s
            )

    def close(self, timeout_s: float | None = None) -> None:
        """Finish what was offered; a failure, or a time that is over, is a StorageError."""
        is_done = self.wait(timeout_s)
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        if self.error is not None:
            raise self.error
        if not is_done:
            raise StorageError(
                f"the upload did not end within {timeout_s:g} s",
                where=self._remote.tier.place,
                fix="the checkpoint is safe in scratch; `milepost upload` sends the rest",
            )

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._waiting is not None or self._is_closed)
                if self._waiting is None:
                    return
                self._sending, self._waiting = self._waiting, None
            try:
                self._send(self._sending)
            except BaseException as error:  # noqa: BLE001 - raised by close() in the caller's thread
                self.error = self.error or error
            with self._condition:
                self._sending = None
                self._condition.notify_all()

    def _send(self, generation: str) -> None:
        proofs = upload_generation(
            self._store, generation, self._remote.tier, self._remote.prefix, fence=self._fence
        )
        self.sent[generation] = proofs
        self.error = None
        if self._rules is not None:
            prune_remote(self._remote, self._rules, self._store.gold())
