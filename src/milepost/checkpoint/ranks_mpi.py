"""An mpi4py communicator whose waits have an end, and which notices a rank that died.

What is said goes as JSON through non-blocking collectives of a duplicate of the communicator, so
that it crosses no message of the application, nothing is pickled, and a rank that does not come
is an error on the others instead of a standstill.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from milepost.checkpoint.ranks_peers import introduce, is_dead
from milepost.errors import StorageError

_SLOT_BYTES = 512
"""What is usually said fits; for more there is a second exchange."""
_HEAD_BYTES = 4
_SPIN_S = 0.0005
_PAUSE_S = 0.0005
_LOOK_S = 0.1
_FIX = (
    "look for its failure in the log; the generations before are intact. Start Python with "
    "`-m mpi4py`: an error of one rank then ends all, where MPI alone would wait for it"
)

_ABANDONED: list[object] = []
"""Exchanges that were given up, with their memory: a rank that is late may still write there."""


def is_mpi(comm: object) -> bool:
    """Is it a communicator of mpi4py, and not one that a caller made up?"""
    return all(hasattr(comm, name) for name in ("Idup", "Iallgather", "Iallgatherv"))


class MpiComm:
    """One rank of `comm`. `timeout_s` bounds every wait: a StorageError on each rank that came.

    The first exchange is where the ranks meet. After an error no other exchange is possible.
    """

    def __init__(self, comm: Any, *, timeout_s: float = 600.0) -> None:
        self._comm, self._timeout_s = comm, timeout_s
        self._own: Any = None
        self._others: dict[int, dict[str, Any]] = {}
        self._error: str | None = None

    def Get_rank(self) -> int:
        return int(self._comm.Get_rank())

    def Get_size(self) -> int:
        return int(self._comm.Get_size())

    def allgather(self, sendobj: Any) -> list[Any]:
        """What every rank gave, in the order of ranks; `sendobj` is JSON data."""
        if self._error is not None:
            raise StorageError(f"the ranks lost each other: {self._error}", fix=_FIX)
        if self._own is None:
            own, request = self._comm.Idup()
            self._await(request)
            self._own = own
            said = self._exchange(introduce())
            self._others = {n: hello for n, hello in enumerate(said) if n != self.Get_rank()}
        return self._exchange(sendobj)

    def lost(self) -> str | None:
        """Why another rank will never answer: its process on this host is gone."""
        return next((f"rank {n} died" for n, hello in self._others.items() if is_dead(hello)), None)

    def close(self) -> None:
        """Give the duplicate back; the ranks meet again at the next exchange."""
        own, self._own = self._own, None
        if own is not None and self._error is None:
            own.Free()
        self._others = {}

    def _exchange(self, sendobj: Any) -> list[Any]:
        data = json.dumps(sendobj).encode()
        slots = np.zeros((self.Get_size(), _SLOT_BYTES), np.uint8)
        mine = np.zeros(_SLOT_BYTES, np.uint8)
        mine[:_HEAD_BYTES] = np.frombuffer(len(data).to_bytes(_HEAD_BYTES, "little"), np.uint8)
        fits = data[: _SLOT_BYTES - _HEAD_BYTES]
        mine[_HEAD_BYTES : _HEAD_BYTES + len(fits)] = np.frombuffer(fits, np.uint8)
        self._await(self._own.Iallgather(mine, slots), mine, slots)
        sizes = [int.from_bytes(slot[:_HEAD_BYTES].tobytes(), "little") for slot in slots]
        if max(sizes) <= _SLOT_BYTES - _HEAD_BYTES:
            texts = [slot[_HEAD_BYTES:][:n].tobytes() for slot, n in zip(slots, sizes, strict=True)]
        else:
            texts = self._exchange_long(data, sizes)
        return [json.loads(text) for text in texts]

    def _exchange_long(self, data: bytes, sizes: list[int]) -> list[bytes]:
        whole = np.empty(sum(sizes), np.uint8)
        ends = np.cumsum(sizes).tolist()
        starts = [end - size for end, size in zip(ends, sizes, strict=True)]
        layout = [whole, sizes, starts, _byte_type()]
        mine = np.frombuffer(data, np.uint8)
        self._await(self._own.Iallgatherv(mine, layout), mine, whole)
        return [whole[a:b].tobytes() for a, b in zip(starts, ends, strict=True)]

    def _await(self, request: Any, *buffers: object) -> None:
        start = time.monotonic()
        next_look = start + _LOOK_S
        while not request.Test():
            now = time.monotonic()
            if now >= next_look:
                next_look = now + _LOOK_S
                lost = self.lost()
                if lost is not None and not request.Test():
                    self._fail(lost, request, buffers)
            if now - start > self._timeout_s:
                self._fail(f"not all ranks came within {self._timeout_s:g} s", request, buffers)
            if now - start > _SPIN_S:
                time.sleep(_PAUSE_S)

    def _fail(self, why: str, *pending: object) -> None:
        self._error = why
        _ABANDONED.append(pending)
        raise StorageError(why, fix=_FIX)


def _byte_type() -> Any:
    from mpi4py import MPI

    return MPI.BYTE
