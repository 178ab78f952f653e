"""`Checkpointer`: what a solver calls between its steps."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from milepost.checkpoint.committer import Committed, Committer, Extras
from milepost.checkpoint.fence import lease_fence
from milepost.checkpoint.layout import plan_layout
from milepost.checkpoint.manifest import Output
from milepost.checkpoint.options import parse_options, stated_in_env
from milepost.checkpoint.policies import Policy
from milepost.checkpoint.ranks import Comm, Ranks, comm_of
from milepost.checkpoint.request import SAVE, STOP, Requests
from milepost.checkpoint.restore import Redecompose, Saved
from milepost.checkpoint.schedule import Schedule
from milepost.checkpoint.session import Cut, Session, Waits
from milepost.checkpoint.stop import StopFlag, stop_with_parent
from milepost.checkpoint.store import CheckpointStore, Hook
from milepost.errors import RESUMABLE, MilepostError
from milepost.tiers import Tier

Arrays = Mapping[str, Any]


class Checkpointer:
    """Saves the state of a computation when it is due, and on the way out.

    Use it as a context manager: signals TERM, USR1, USR2, URG and INT then set `stopping`, and
    the exit waits for the commit under way. When the process was told to stop, the exit ends it
    with code 75 (resumable); when the last checkpoint is not durable, the exit raises.

    `state_fn` of `step` returns (arrays, meta): arrays by name, and small JSON-able data such as
    the state of a random generator. Only one process (with its ranks) may save into a folder.
    """

    def __init__(
        self,
        folder: Path | str = "checkpoints",
        *,
        comm: Comm | None = None,
        warm: str | Tier | None = None,
        cold: str | Tier | None = None,
        solver: Mapping[str, Any] | None = None,
        redecompose: Redecompose | None = None,
        decomposition_version: int = 1,
        policy: Policy | None = None,
        hook: Hook = lambda step: None,
        **options: Any,
    ) -> None:
        """`options` are fields of `Options`: interval_s, deadline, rotation, delta, allow, …

        Without `comm`, the ranks of an mpirun or of a Slurm step meet in `folder`; `ALONE` is
        one process in any case.
        A state of another number of ranks, or of another `decomposition_version`, is refused
        without `redecompose`, a function (parts, rank, rank count) -> (arrays, meta): `parts[n]`
        is the `Saved` of the n-th rank of then.

        `policy` says when `step` saves (see `policies`); without one it is a signal, the walltime
        and the interval. `saves_skipped` and `saves_waited` count the saves that came while
        another was under way, `waited_s` is how long they waited together.

        `solver` are parameters that the manifest records. `hook` is for tests, see
        `CheckpointStore`.
        """
        self.options = parse_options({**options, "folder": str(folder)})
        timeout_s = self.options.rank_timeout_s
        self._ranks = Ranks(comm_of(comm, folder, timeout_s), timeout_s=timeout_s)
        self._store = CheckpointStore(folder, attempt=_attempt(), hook=hook)
        cut = Cut(decomposition_version, redecompose)
        self._session = Session(
            self._store, self.options, self._ranks, lease_fence(), warm, cold, cut
        )
        self._solver = dict(solver or {})
        self._schedule = Schedule(self.options, policy)
        self._is_skipping = False
        self.saves_skipped = self.saves_waited = 0
        self.waited_s = 0.0
        self._flag = StopFlag()
        self._requests = Requests(self._store.folder)
        self._walltime: str | None = None
        self._is_stop_saved = self._is_finished = False
        self._error: BaseException | None = None
        self._committer: Committer | None = None
        self.commits: list[Committed] = []

    @classmethod
    def from_env(cls, *, comm: Comm | None = None, **options: Any) -> Self:
        """As the runner configured it in MILEPOST_CKPT; without one, in `./checkpoints`.

        The process is told to stop when its runner dies. `options` are the caller's defaults;
        the runner's word counts more.
        """
        stated = stated_in_env()
        if stated is None:
            print(
                "milepost: MILEPOST_CKPT is not set; checkpoints go to ./checkpoints",
                file=sys.stderr,
            )
            return cls(comm=comm, **options)
        stop_with_parent()
        parse_options(stated)
        return cls(comm=comm, **{**options, **stated})

    def __enter__(self) -> Self:
        self._open()
        self._flag.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        is_clean = error is None or (isinstance(error, SystemExit) and not error.code)
        try:
            if is_clean:
                self.close()
            else:
                self._close_after(error)
        finally:
            self._flag.restore()
        if is_clean and self.stopping and not self._is_finished:
            raise SystemExit(RESUMABLE)

    @property
    def folder(self) -> Path:
        return self._store.folder

    @property
    def stop_reason(self) -> str | None:
        """Such as `signal TERM` or `walltime`; None when nobody said stop."""
        return self._flag.reason or self._walltime

    @property
    def stopping(self) -> bool:
        """Was the process told to stop, by a signal or by the end of its time?"""
        return self.stop_reason is not None

    def restore(self) -> Saved | None:
        """The newest legal and intact generation; None when there is none.

        What was damaged and what was lost stands on stderr and in the result. Errors: Refused for
        another container, GPU profile, code or decomposition; DataError when nothing is intact.
        """
        committer = self._open()
        committer.settle()
        saved = self._session.restore()
        if saved is not None:
            committer.know(saved.known, saved.generation)
            committer.prepare(sum(array.nbytes for array in saved.arrays.values()))
        self._schedule.restart()
        return saved

    def prepare(self, arrays: Arrays) -> None:
        """Make the staging memory for such arrays in the background, before the first save.

        Without it the first save waits for memory that the kernel has to find, several times as
        long as the later ones. After `restore` it is done already.
        """
        plain = {name: np.asanyarray(array) for name, array in arrays.items()}
        self._open().prepare(plan_layout(plain).image_bytes)

    def step(self, step: int, state_fn: Callable[[], tuple[Arrays, Any]]) -> bool:
        """Save if it is due, if the process should stop, or before its time is over.

        Costs a fraction of a microsecond when nothing is due. Returns whether it saved. The
        failure of an earlier save in the background is raised here.
        """
        schedule = self._schedule
        schedule.steps += 1
        if (
            time.monotonic() < schedule.next_look
            and self._flag.reason is None
            and self._error is None
            and self._ranks.size == 1
        ):
            return False
        return not self._ranks.may_skip() and self._look(step, state_fn)

    def save(
        self,
        step: int,
        arrays: Arrays,
        meta: Any = None,
        *,
        outputs: Sequence[Output] = (),
        control: Mapping[str, Any] | None = None,
    ) -> None:
        """Save now: waits for a save under way, then for one copy of the arrays in memory.

        `outputs` are files outside that belong to the state, `control` is a control metric; both
        go into the manifest. Errors: Refused when this attempt was superseded; DataError for what
        cannot be saved; StorageError of the save before.
        """
        committer = self._open()
        self._wait_if_busy(committer)
        self._raise_error()
        plain = {name: np.asanyarray(array) for name, array in arrays.items()}
        counts = self.saves_skipped, self.saves_waited
        extras = Extras(self._solver, tuple(outputs), control, *counts)
        self._schedule.restart()
        committer.save(step, plain, meta, extras, self._done)

    def wait(self) -> Committed | None:
        """Wait until the save under way is durable; returns what was committed last."""
        if self._committer is not None:
            self._committer.settle()
        self._raise_error()
        return self.commits[-1] if self.commits else None

    def finish(self) -> None:
        """The work is complete: the exit does not end the process with 75, also after a signal."""
        self._is_finished = True

    def close(self) -> None:
        """Wait for the commit and the upload; raises if the last checkpoint is not durable."""
        try:
            self.wait()
            self._session.close(may_leave_upload=self.stopping)
        finally:
            self._shut()

    def _close_after(self, error: BaseException | None) -> None:
        """The way out with an exception: let the commit end, but do not hide the exception."""
        if self._committer is not None:
            self._committer.settle()
        if self._error is not None and self._error is not error and error is not None:
            error.add_note(f"milepost: the last checkpoint failed too: {self._error}")
        self._session.abandon(is_application_fault=not isinstance(error, MilepostError))
        self._shut()

    def _shut(self) -> None:
        if self._committer is not None:
            self._committer.close()
            self._committer = None
            self._tell(None, None, is_running=False)
        self._ranks.close()

    def _open(self) -> Committer:
        if self._committer is None:
            self._session.open()
            self._committer = self._session.committer()
        return self._committer

    def _look(self, step: int, state_fn: Callable[[], tuple[Arrays, Any]]) -> bool:
        reason = self._schedule.reason(None if self._is_stop_saved else self._flag.reason)
        if reason in (None, "interval") and self._ranks.rank == 0:
            reason = self._requests.asked() or reason
        error, reason = self._ranks.agree_at_step(self._error, reason)
        if error is not None:
            self._raise_error()
            raise error
        if reason is None or self._is_stop_saved:
            return False
        is_last = reason in ("walltime", STOP) or reason.startswith("signal")
        may_skip = not is_last and reason != SAVE and self.options.when_busy == "skip"
        if may_skip and self._is_skipped():
            return False
        if is_last:
            self._walltime = self._walltime or reason
            self._is_stop_saved = True
        arrays, meta = state_fn()
        if reason != "interval" and self._ranks.rank == 0:
            self._requests.taken()
        self.save(step, arrays, meta)
        return True

    def _is_skipped(self) -> bool:
        """Is a save under way on any rank? Counted once, however often the next one is tried."""
        if not self._ranks.agree_any(self._open().is_busy()):
            self._is_skipping = False
            return False
        self.saves_skipped += not self._is_skipping
        self._is_skipping = True
        self._schedule.postpone()
        return True

    def _wait_if_busy(self, committer: Committer) -> None:
        start, is_busy = time.monotonic(), committer.is_busy()
        committer.settle()
        if is_busy:
            self.saves_waited += 1
            self.waited_s += time.monotonic() - start

    def _done(self, committed: Committed | None, error: BaseException | None) -> None:
        """In the background: note how a save ended; `step`, `wait` and `close` tell about it."""
        if committed is not None:
            self.commits.append(committed)
            self._schedule.durable(committed.durable_s, committed.blocked_s)
        self._error = error or self._error
        self._tell(committed, error)

    def _tell(
        self, committed: Committed | None, error: BaseException | None, is_running: bool = True
    ) -> None:
        waits = self.saves_skipped, self.saves_waited, self.waited_s
        standing = Waits(*waits, self._schedule.interval_s(), is_running)
        self._session.tell(committed, error, standing)

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error


def _attempt() -> int:
    """The number of this attempt, which the runner gives in MILEPOST_ATTEMPT."""
    text = os.environ.get("MILEPOST_ATTEMPT", "0")
    return int(text) if text.isdecimal() else 0
