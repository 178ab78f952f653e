"""A communicator of small files, for ranks that share nothing but the checkpoint folder.

    .meet-<launch>/hello-<rank>.json     who came: a number of chance, host, process
    .meet-<launch>/open.json             rank 0: the session, and whom it counts in
    .meet-<launch>/<session>/ready-<rank>    "I am in"
    .meet-<launch>/<session>/go          rank 0: all are in
    .meet-<launch>/<session>/<n>-<rank>.json what a rank says in the n-th exchange
    .meet-<launch>/<session>/gone-<rank> it left in good order

A launch can have the name of one that died. Files of dead ranks do no harm: rank 0 counts in the
newest hello of each rank, and a rank is in only when its own number stands in `open.json`; until
all are, rank 0 looks for newer hellos. Files appear whole (written aside, then renamed) and need
not survive a crash, so nothing here waits for a disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from milepost.checkpoint.ranks_peers import introduce, is_dead, is_near
from milepost.checkpoint.ranks_world import World, world_of
from milepost.durable import storage_errors
from milepost.errors import StorageError

MEETING_PREFIX = ".meet-"
_POLL_S = (0.0005, 0.02)
_LOOK_S = 0.1
_LOOK = "look for its failure in the log; the generations before are intact"


class FileComm:
    """One rank; it meets the others in `folder` when it first has something to exchange.

    `timeout_s` bounds every wait. A rank of this host that dies is noticed at once, others by the
    end of that time. Each is a StorageError on all ranks that live.
    """

    def __init__(self, world: World, folder: Path | str, *, timeout_s: float = 600.0) -> None:
        self._world, self._timeout_s = world, timeout_s
        self._folder = Path(folder) / f"{MEETING_PREFIX}{world.launch}"
        self._session: Path | None = None
        self._others: dict[int, dict[str, Any]] = {}
        self._count = 0

    def Get_rank(self) -> int:
        return self._world.rank

    def Get_size(self) -> int:
        return self._world.size

    def allgather(self, sendobj: Any) -> list[Any]:
        """What every rank gave, in the order of ranks; `sendobj` is JSON data."""
        session = self._session or self._meet()
        self._count += 1
        number, rank = self._count, self._world.rank
        _put(session / f"{number}-{rank}.json", sendobj)
        said = [self._hear(session / f"{number}-{r}.json", r) for r in range(self._world.size)]
        # Whoever is in this exchange has read the one before.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(session / f"{number - 1}-{rank}.json")
        return said

    def lost(self) -> str | None:
        """Why another rank will never answer: it left, or its process on this host is gone."""
        session = self._session
        for rank, hello in self._others.items():
            if session is not None and (session / f"gone-{rank}").exists():
                return f"rank {rank} left"
            if is_dead(hello):
                return f"rank {rank} died"
        return None

    def close(self) -> None:
        """Leave in good order; the last rank removes the meeting place."""
        session, self._session = self._session, None
        if session is None:
            return
        with contextlib.suppress(OSError):
            os.unlink(self._folder / f"hello-{self._world.rank}.json")
            _put(session / f"gone-{self._world.rank}", None)
            if {f"gone-{rank}" for rank in range(self._world.size)} <= set(os.listdir(session)):
                # Nobody can begin another session here before this rank says hello again.
                for place in [*self._folder.iterdir()]:
                    if place.is_dir():
                        shutil.rmtree(place, ignore_errors=True)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._folder / "open.json")
                os.rmdir(self._folder)
        self._others, self._count = {}, 0

    def _hear(self, path: Path, rank: int) -> Any:
        found: list[Any] = []

        def is_there() -> bool:
            with contextlib.suppress(FileNotFoundError):
                found.append(json.loads(path.read_text(encoding="utf-8")))
            return bool(found)

        self._await(is_there, lambda: f"rank {rank}")
        return found[0]

    def _meet(self) -> Path:
        hello, is_said = introduce(), False
        while not is_said:
            with storage_errors(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
            # The last rank of the meeting before may just be removing the folder.
            with contextlib.suppress(FileNotFoundError):
                _put(self._folder / f"hello-{self._world.rank}.json", hello)
                is_said = True
        self._session = self._lead() if self._world.rank == 0 else self._join(hello["nonce"])
        return self._session

    def _lead(self) -> Path:
        """Rank 0: open sessions until all ranks of one are in."""
        opened: dict[int, dict[str, Any]] = {}
        session = self._folder

        def is_complete() -> bool:
            nonlocal opened, session
            hellos = self._hellos()
            if hellos != opened and len(hellos) == self._world.size:
                opened, session = hellos, self._folder / secrets.token_hex(8)
                session.mkdir()
                said = {str(rank): hello["nonce"] for rank, hello in hellos.items()}
                _put(self._folder / "open.json", {"session": session.name, "nonces": said})
            names = {f"ready-{rank}" for rank in range(1, self._world.size)}
            with contextlib.suppress(FileNotFoundError):
                return bool(opened) and names <= set(os.listdir(session))
            return False

        self._await(is_complete, lambda: self._missing(set(self._hellos())))
        self._others = {rank: hello for rank, hello in opened.items() if rank != 0}
        _put(session / "go", None)
        return session

    def _join(self, nonce: str) -> Path:
        """Other ranks: be in whatever session counts this process in, until one begins."""
        session = self._folder

        def has_begun() -> bool:
            nonlocal session
            said = _get(self._folder / "open.json") or {"session": "", "nonces": {}}
            if said["nonces"].get(str(self._world.rank)) != nonce:
                return False
            session = self._folder / said["session"]
            with contextlib.suppress(FileNotFoundError):
                _put(session / f"ready-{self._world.rank}", None)
            return bool((session / "go").exists())

        self._await(has_begun, lambda: self._missing(set(self._hellos())))
        hellos = self._hellos()
        self._others = {rank: hello for rank, hello in hellos.items() if rank != self._world.rank}
        return session

    def _hellos(self) -> dict[int, dict[str, Any]]:
        found = {r: _get(self._folder / f"hello-{r}.json") for r in range(self._world.size)}
        return {rank: hello for rank, hello in found.items() if hello is not None}

    def _missing(self, here: set[int]) -> str:
        late = sorted(set(range(self._world.size)) - here) or [0]
        return f"rank {', '.join(map(str, late))} of {self._world.size}"

    def _await(self, is_done: Callable[[], bool], who: Callable[[], str]) -> None:
        """Look again and again until `is_done`; a StorageError after the deadline or a death."""
        now, pause = time.monotonic(), _POLL_S[0]
        end, next_look = now + self._timeout_s, now + _LOOK_S
        while not is_done():
            now = time.monotonic()
            if now >= next_look:
                lost, next_look = self.lost(), now + _LOOK_S
                if lost is not None and not is_done():
                    raise StorageError(lost, where=self._folder, fix=_LOOK)
            if now > end:
                raise StorageError(
                    f"{who()} did not come within {self._timeout_s:g} s",
                    where=self._folder,
                    fix=f"{_LOOK}; when one rank saves for all, give it Checkpointer(comm=ALONE)",
                )
            time.sleep(pause)
            pause = min(pause * 1.5, _POLL_S[1])


def _put(path: Path, value: Any) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with storage_errors(path):
        aside.write_text(json.dumps(value), encoding="utf-8")
        os.replace(aside, path)


def _get(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def is_deserted(folder: Path, foreign_age_s: float) -> bool:
    """Is this meeting place of another launch one of dead ranks only?

    Ranks of other hosts count as dead when the place did not change for `foreign_age_s`.
    """
    world = world_of()
    if world is not None and folder.name == f"{MEETING_PREFIX}{world.launch}":
        return False
    try:
        hellos = [_get(path) for path in folder.glob("hello-*.json")]
        is_old = time.time() - folder.stat().st_mtime > foreign_age_s
    except FileNotFoundError:
        return False
    if not hellos:
        return is_old
    return all(
        is_dead(hello) if is_near(hello) else is_old for hello in hellos if hello is not None
    )
