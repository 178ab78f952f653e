"""Ranks that checkpoint together: each writes its own file, rank 0 the manifest and OK.

The decision to save and the name of the generation are exchanged by the communicator, in the
caller's thread. What follows in the background meets through the folder of the draft, so that no
message of a background thread can cross one of the application.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from milepost.checkpoint.ranks_files import FileComm
from milepost.checkpoint.ranks_mpi import MpiComm, is_mpi
from milepost.checkpoint.ranks_world import world_of
from milepost.checkpoint.store import CheckpointStore, Draft
from milepost.durable import read_json, write_json
from milepost.errors import StorageError
from milepost.model import FileProof

_POLL_S = 0.005
_LOOK_S = 0.1
_ACK = ".ack-{rank}.json"
_FAILED = ".failed-{rank}"
_EXCHANGE_SHARE = 0.02
_EXCHANGE_MOST_S = 2.0
_FIX = "look for its failure in the log; the generations before are intact"


class Comm(Protocol):
    """The part of an mpi4py communicator that is used."""

    def Get_rank(self) -> int: ...
    def Get_size(self) -> int: ...
    def allgather(self, sendobj: Any) -> list[Any]: ...


@runtime_checkable
class Watching(Protocol):
    """A communicator that can tell why another rank will never answer."""

    def lost(self) -> str | None: ...
    def close(self) -> None: ...


class Alone:
    """The communicator of one process, also below mpirun and srun."""

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 1

    def allgather(self, sendobj: Any) -> list[Any]:
        return [sendobj]


ALONE = Alone()


def comm_of(comm: Comm | None, folder: Path | str, timeout_s: float) -> Comm | None:
    """`comm` with an end to its waits, or files in `folder` for the ranks of an mpirun or a Slurm
    step; None for one process."""
    if comm is not None:
        if comm is ALONE or comm.Get_size() == 1:
            return None
        return MpiComm(comm, timeout_s=timeout_s) if is_mpi(comm) else comm
    world = world_of()
    return None if world is None else FileComm(world, folder, timeout_s=timeout_s)


class Ranks:
    """One process, or the ranks of a communicator. `timeout_s` bounds every wait for the others
    behind a save; the communicator has its own bound."""

    def __init__(self, comm: Comm | None = None, *, timeout_s: float = 600.0) -> None:
        self._comm, self._timeout_s = comm, timeout_s
        self._watch = comm if isinstance(comm, Watching) else None
        self.rank = 0 if comm is None else comm.Get_rank()
        self.size = 1 if comm is None else comm.Get_size()
        self._skip = self._skipped = 0
        self._asked: float | None = None
        self._cost_s: float | None = None
        self._is_folder_seen = False

    @property
    def file_name(self) -> str:
        return rank_file(self.rank)

    @property
    def decomposition(self) -> Mapping[int, str]:
        return {rank: rank_file(rank) for rank in range(self.size)}

    def close(self) -> None:
        """Leave the meeting of the ranks, where there is one."""
        if self._watch is not None:
            self._watch.close()

    def agree(self, value: Any) -> Any:
        """The first value among the ranks that is not None; every rank gets the same."""
        if self._comm is None:
            return value
        return next((found for found in self._comm.allgather(value) if found is not None), None)

    def agree_any(self, is_so: bool) -> bool:
        """Is it so on any rank?"""
        return bool(self.agree(True if is_so else None))

    def agree_on(
        self, error: BaseException | None, reason: str | None
    ) -> tuple[BaseException | None, str | None]:
        """Does any rank report an error, or have a reason to save? Every rank hears the same."""
        if self._comm is None:
            return error, reason
        said = self._comm.allgather((None if error is None else str(error), reason))
        errors = [text for text, _ in said if text is not None]
        if errors:
            return error or StorageError(f"another rank could not save: {errors[0]}"), None
        return None, next((found for _, found in said if found is not None), None)

    def may_skip(self) -> bool:
        """May this step go by without an exchange? The same answer on every rank.

        An exchange that is slow against a step is made rarer: it takes 2 % of the time, or comes
        every two seconds.
        """
        if self._comm is None:
            return False
        if self._skipped < self._skip:
            self._skipped += 1
            return True
        return False

    def agree_at_step(
        self, error: BaseException | None, reason: str | None
    ) -> tuple[BaseException | None, str | None]:
        """As `agree_on`, and settle how many steps go by before the next exchange."""
        if self._comm is None:
            return error, reason
        start, steps = time.monotonic(), self._skipped + 1
        step_s = None if self._asked is None else (start - self._asked) / steps
        text = None if error is None else str(error)
        said = self._comm.allgather((text, reason, step_s, self._cost_s))
        self._asked = time.monotonic()
        self._cost_s = self._asked - start
        self._skip, self._skipped = _steps_between(said, steps), 0
        errors = [item[0] for item in said if item[0] is not None]
        if errors:
            return error or StorageError(f"another rank could not save: {errors[0]}"), None
        return None, next((item[1] for item in said if item[1] is not None), None)

    def begin(
        self, store: CheckpointStore, prepare: Callable[[], None]
    ) -> tuple[Draft | None, str]:
        """Every rank prepares, rank 0 begins a draft. Returns (draft or None, generation).

        When one rank fails, all raise, so that none waits for the others in vain.
        """
        draft, error = None, None
        try:
            prepare()
            draft = store.begin() if self.rank == 0 else None
        except Exception as caught:  # noqa: BLE001 - raised below, on every rank
            error = caught
        try:
            failure, _ = self.agree_on(error, None)
            if failure is not None:
                raise failure
            said = self.agree(None if draft is None else (draft.name, draft.folder.name))
            self._check_folder(store, said[1])
        except BaseException:
            if draft is not None:
                draft.abandon()
            raise
        self._folder_name = said[1]
        return draft, said[0]

    def _check_folder(self, store: CheckpointStore, name: str) -> None:
        """Once: does every rank see what rank 0 made? Else all of them raise."""
        if self.size == 1 or self._is_folder_seen:
            return
        place, error = store.folder / name, None
        if not place.is_dir():
            error = StorageError(
                f"rank {self.rank} does not see what rank 0 writes",
                where=store.folder,
                fix="ranks on several nodes need a folder that all of them see, such as "
                "tiers.scratch on the shared file system",
            )
        failure, _ = self.agree_on(error, None)
        if failure is not None:
            raise failure
        self._is_folder_seen = True

    def folder(self, store: CheckpointStore, draft: Draft | None, generation: str) -> Path:
        return store.folder / self._folder_name if draft is None else draft.folder

    def gather(
        self, folder: Path, proof: FileProof, bases: Sequence[str]
    ) -> tuple[list[FileProof], list[str]]:
        """Tell rank 0 that this rank's file is durable; rank 0 waits for all of them.

        Returns the proofs of all files and the bases of all ranks on rank 0, this rank's on the
        others.
        """
        if self.size == 1:
            return [proof], list(bases)
        if self.rank != 0:
            ack = {"proof": proof.as_json(), "bases": list(bases)}
            self._check_draft(folder)
            write_json(folder / _ACK.format(rank=self.rank), ack)
            return [proof], list(bases)
        proofs, all_bases = [proof], list(bases)
        for rank in range(1, self.size):
            path = folder / _ACK.format(rank=rank)
            self._wait_for(path, f"rank {rank}", lambda: self.check_votes(folder))
            ack = read_json(path)
            path.unlink()
            said = ack["proof"]
            proofs.append(FileProof(said["path"], said["bytes"], said["digest"]))
            all_bases += [base for base in ack["bases"] if base not in all_bases]
        return proofs, all_bases

    def check_votes(self, folder: Path) -> None:
        """Rank 0: raise when a rank could not write its part, or gave the generation up."""
        for rank in range(1, self.size):
            vote = folder / _FAILED.format(rank=rank)
            if vote.exists():
                why = vote.read_text(encoding="utf-8", errors="replace") or "no reason was left"
                raise StorageError(f"rank {rank} could not save: {why}", where=folder, fix=_FIX)

    def give_up(self, folder: Path, error: BaseException) -> None:
        """Another rank than 0: vote against the generation, as well as a full disk allows."""
        if self.rank == 0:
            return
        with contextlib.suppress(OSError):
            vote = folder / _FAILED.format(rank=self.rank)
            vote.touch()
            vote.write_text(str(error), encoding="utf-8")

    def committed(self, store: CheckpointStore, generation: str) -> None:
        """Return when the generation exists; on rank 0 it does."""
        if self.rank == 0:
            return
        draft, done = store.folder / self._folder_name, store.path(generation) / "OK"

        def check() -> None:
            if not done.exists() and not draft.exists() and not done.exists():
                raise aborted(draft)

        self._wait_for(done, "rank 0", check)

    def _check_draft(self, folder: Path) -> None:
        if not folder.exists():
            raise aborted(folder)

    def _wait_for(self, path: Path, who: str, check: Callable[[], None]) -> None:
        """Wait until `path` exists. `check` raises when it never will."""
        now = time.monotonic()
        end, next_look = now + self._timeout_s, now
        while not path.exists():
            now = time.monotonic()
            if now >= next_look:
                check()
                lost = None if self._watch is None else self._watch.lost()
                if lost is not None and not path.exists():
                    raise StorageError(f"{lost} during a checkpoint", where=path.parent, fix=_FIX)
                next_look = now + _LOOK_S
            if now > end:
                raise StorageError(
                    f"{who} did not finish its part of a checkpoint within {self._timeout_s:g} s",
                    where=path,
                    fix=_FIX,
                )
            time.sleep(_POLL_S)


def rank_file(rank: int) -> str:
    return f"rank_{rank}.bin"


def aborted(folder: Path) -> StorageError:
    return StorageError("rank 0 gave this checkpoint up", where=folder, fix=_FIX)


def _steps_between(said: Sequence[Sequence[Any]], steps: int) -> int:
    """How many steps may go by, from what all ranks measured; at most twice as many as before."""
    times, costs = [item[2] for item in said], [item[3] for item in said]
    if None in times or None in costs:
        return 0
    wanted_s = min(max(costs) / _EXCHANGE_SHARE, _EXCHANGE_MOST_S)
    return min(int(wanted_s / max(*times, 1e-9)), 2 * steps) if max(costs) > 0 else 0
