"""One measured checkpoint, and what measures it."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypeVar

from bench.states import State

RESTORES = 3
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Saved:
    """Seconds that the application waits, seconds until all is durable, processor seconds of that,
    bytes added to the disk, seconds of a restore from a cold cache. None: there is no such thing."""

    blocked_s: float | None = None
    durable_s: float | None = None
    cpu_s: float | None = None
    stored_bytes: float | None = None
    restore_s: float | None = None


class Watch:
    """Wall and processor seconds of a block, with its threads and its ended children."""

    wall_s = cpu_s = 0.0

    def __enter__(self) -> Watch:
        self._wall, self._cpu = time.perf_counter(), _cpu_s()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s, self.cpu_s = time.perf_counter() - self._wall, _cpu_s() - self._cpu


def _cpu_s() -> float:
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def size_of(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def forget(folder: Path) -> None:
    """Drop the files below from the page cache, so that a restore reads the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def same(restored: State, state: State) -> None:
    """A restore counts only when it gives back the same bytes."""
    if restored.tobytes() != state.tobytes():
        raise SystemExit("bench: the restored state is another one")


def restore_s(
    folder: Path, load: Callable[[], T], read: Callable[[T], State], state: State
) -> float:
    """Seconds of `load`, each time with the page cache empty; what it loaded, by `read`, must be
    `state`. The median of RESTORES: in a virtual machine the first pays for memory that is new.
    """
    seconds = []
    for _ in range(RESTORES):
        forget(folder)
        with Watch() as watch:
            found = load()
        seconds.append(watch.wall_s)
        same(read(found), state)
        del found
    return statistics.median(seconds)


@contextmanager
def growth(folder: Path) -> Iterator[Callable[[], int]]:
    """Bytes that were added below `folder` since the block began."""
    before = size_of(folder)
    yield lambda: size_of(folder) - before


def median(results: Sequence[Saved]) -> Saved:
    """Field by field; None where nothing was measured."""
    found = Saved()
    for field in fields(Saved):
        values = [getattr(one, field.name) for one in results]
        known = [value for value in values if value is not None]
        if known:
            found = replace(found, **{field.name: statistics.median(known)})
    return found
