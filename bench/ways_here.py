"""Ways to save a state from this process: milepost, the floor of the machine, numpy."""

from __future__ import annotations

import mmap
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers import quiet
from bench.saved import Saved, Watch, fsync, growth, restore_s
from bench.states import Kind, State

MIB = 1 << 20


def milepost(kind: Kind, size: int, folder: Path) -> Saved:
    from milepost import Checkpointer

    state, place = kind.make(size), folder / "ckpt"
    with Checkpointer(place, interval_s=1e9) as ck:
        ck.save(0, {"state": state})
        ck.wait()
        kind.change(state)
        with growth(place) as grown, Watch() as whole:
            with Watch() as blocked:
                ck.save(1, {"state": state})
            ck.wait()
        stored = grown()

    opened = ExitStack()

    def load() -> Any:
        return opened.enter_context(Checkpointer(place, interval_s=1e9)).restore()

    def read(saved: Any) -> State:
        opened.close()  # behind the clock: it waits for memory that the next save would need
        state: State = saved.arrays["state"]
        return state

    with quiet():
        restored_s = restore_s(place, load, read, state)
    return Saved(blocked.wall_s, whole.wall_s, whole.cpu_s, stored, restored_s)


def memory_copy(kind: Kind, size: int, folder: Path) -> Saved:
    state = kind.make(size)
    target = state.copy()  # its memory is backed now
    kind.change(state)
    with Watch() as watch:
        np.copyto(target, state)
    return Saved(blocked_s=watch.wall_s)


def raw_direct(kind: Kind, size: int, folder: Path) -> Saved:
    """One file past the page cache, in pieces of 8 MiB, reserved before, then fsync."""
    state = kind.make(size)
    kind.change(state)
    data = state.tobytes()
    buffer = mmap.mmap(-1, -(-len(data) // mmap.PAGESIZE) * mmap.PAGESIZE)
    buffer[: len(data)] = data
    view = memoryview(buffer)
    with Watch() as watch:
        fd = _open_direct(folder / "raw.bin")
        os.posix_fallocate(fd, 0, len(view))
        for start in range(0, len(view), 8 * MIB):
            os.write(fd, view[start : start + 8 * MIB])
        os.fsync(fd)
        os.close(fd)
    return Saved(watch.wall_s, watch.wall_s, watch.cpu_s, len(view))


def _open_direct(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o666)
    except OSError:  # a file system without direct writing, such as tmpfs
        return os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)


def numpy_save(kind: Kind, size: int, folder: Path) -> Saved:
    state = kind.make(size)
    np.save(folder / "0.npy", state)
    kind.change(state)
    with growth(folder) as grown, Watch() as watch:
        np.save(folder / "1.npy", state)
        fsync(folder / "1.npy")
        fsync(folder)
    stored = grown()
    restored_s = restore_s(folder, lambda: np.load(folder / "1.npy"), lambda found: found, state)
    return Saved(watch.wall_s, watch.wall_s, watch.cpu_s, stored, restored_s)
