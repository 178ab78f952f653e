"""Ranks that checkpoint together: each writes its own file, rank 0 the manifest and OK.

The decision to save and the name of the generation are exchanged by the communicator, in the
caller's thread. What follows in the background meets through the folder of the draft, so that no
message of a background thread can cross one of the application.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from milepost.checkpoint.store import CheckpointStore, Draft
from milepost.durable import read_json, write_json
from milepost.errors import StorageError
from milepost.model import FileProof

_POLL_S = 0.005
_ACK = ".ack-{rank}.json"


class Comm(Protocol):
    """The part of an mpi4py communicator that is used."""

    def Get_rank(self) -> int: ...
    def Get_size(self) -> int: ...
    def allgather(self, sendobj: Any) -> list[Any]: ...


class Ranks:
    """One process, or the ranks of a communicator. `timeout_s` bounds every wait for the others."""

    def __init__(self, comm: Comm | None = None, *, timeout_s: float = 600.0) -> None:
        self._comm, self._timeout_s = comm, timeout_s
        self.rank = 0 if comm is None else comm.Get_rank()
        self.size = 1 if comm is None else comm.Get_size()

    @property
    def file_name(self) -> str:
        return rank_file(self.rank)

    @property
    def decomposition(self) -> Mapping[int, str]:
        return {rank: rank_file(rank) for rank in range(self.size)}

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
        failure, _ = self.agree_on(error, None)
        if failure is not None:
            if draft is not None:
                draft.abandon()
            raise failure
        said = self.agree(None if draft is None else (draft.name, draft.folder.name))
        self._folder_name = said[1]
        return draft, said[0]

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
            write_json(folder / _ACK.format(rank=self.rank), ack)
            return [proof], list(bases)
        proofs, all_bases = [proof], list(bases)
        for rank in range(1, self.size):
            path = folder / _ACK.format(rank=rank)
            self._wait_for(path, f"rank {rank}")
            ack = read_json(path)
            path.unlink()
            said = ack["proof"]
            proofs.append(FileProof(said["path"], said["bytes"], said["digest"]))
            all_bases += [base for base in ack["bases"] if base not in all_bases]
        return proofs, all_bases

    def committed(self, store: CheckpointStore, generation: str) -> None:
        """Return when the generation exists; on rank 0 it does."""
        if self.rank == 0:
            return
        draft, done = store.folder / self._folder_name, store.path(generation) / "OK"
        self._wait_for(done, "rank 0", lambda: not draft.exists() and not done.exists())

    def _wait_for(self, path: Path, who: str, is_lost: Callable[[], bool] = lambda: False) -> None:
        end = time.monotonic() + self._timeout_s
        while not path.exists():
            if is_lost() or time.monotonic() > end:
                raise StorageError(
                    f"{who} did not finish its part of a checkpoint within {self._timeout_s:g} s",
                    where=path,
                    fix="look for its failure in the log; the generations before are intact",
                )
            time.sleep(_POLL_S)


def rank_file(rank: int) -> str:
    return f"rank_{rank}.bin"
