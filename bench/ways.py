"""Ways to save a state: milepost, the floor of the machine, and what people use.

Each makes a first checkpoint that is not timed, as a long run does; the state changes, and the
second one is timed. Then it is restored with the page cache empty.
"""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers import quiet
from bench.saved import Saved, Watch, forget, fsync, growth, same
from bench.states import Kind

MIB = 1 << 20
OURS = "milepost"
TORCH_VARIABLE = "BENCH_TORCH_PYTHON"
"""The interpreter of an environment that has torch, when this one has not."""


@dataclass(frozen=True, slots=True)
class Way:
    """`run(kind, size, folder)` measures; `is_here` tells whether what it needs is installed."""

    name: str
    does: str
    run: Callable[[Kind, int, Path], Saved]
    is_here: Callable[[], bool] = lambda: True


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
    forget(place)
    with Checkpointer(place, interval_s=1e9) as ck, quiet():
        with Watch() as restored:
            saved = ck.restore()
        assert saved is not None
        same(saved.arrays["state"], state)
    return Saved(blocked.wall_s, whole.wall_s, whole.cpu_s, stored, restored.wall_s)


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
    forget(folder)
    with Watch() as restored:
        found = np.load(folder / "1.npy")
    same(found, state)
    return Saved(watch.wall_s, watch.wall_s, watch.cpu_s, stored, restored.wall_s)


def copy_file(kind: Kind, size: int, folder: Path) -> Saved:
    """cp of a file that was written before."""
    state, source = kind.make(size), folder / "state.bin"
    kind.change(state)
    state.tofile(source)
    with growth(folder) as grown, Watch() as watch:
        subprocess.run(["cp", str(source), str(folder / "copy.bin")], check=True)
        fsync(folder / "copy.bin")
        fsync(folder)
    stored = grown()
    forget(folder)
    with Watch() as restored:
        subprocess.run(["cp", str(folder / "copy.bin"), str(folder / "back.bin")], check=True)
    same(np.fromfile(folder / "back.bin", state.dtype), state.ravel())
    return Saved(watch.wall_s, watch.wall_s, watch.cpu_s, stored, restored.wall_s)


def restic(kind: Kind, size: int, folder: Path) -> Saved:
    """Backup of a file that was written before; a restore verifies."""
    state, source, there = kind.make(size), folder / "state.bin", folder / "restored"
    state.tofile(source)
    _restic(folder, "init")
    _restic(folder, "backup", str(source))
    kind.change(state)
    state.tofile(source)
    repository = folder / "repository"
    with growth(repository) as grown, Watch() as watch:
        _restic(folder, "backup", str(source))
    stored = grown()
    forget(repository)
    with Watch() as restored:
        _restic(folder, "restore", "latest", "--target", str(there))
    same(np.fromfile(there / source.relative_to("/"), state.dtype), state.ravel())
    return Saved(watch.wall_s, watch.wall_s, watch.cpu_s, stored, restored.wall_s)


def _restic(folder: Path, *words: str) -> None:
    environment = {
        **os.environ,
        "RESTIC_REPOSITORY": str(folder / "repository"),
        "RESTIC_PASSWORD": "bench",
        "RESTIC_CACHE_DIR": str(folder / "cache"),
    }
    command = ["restic", "--quiet", *words]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def torch_dcp(kind: Kind, size: int, folder: Path) -> Saved:
    return _torch(kind, size, folder, "save")


def torch_dcp_async(kind: Kind, size: int, folder: Path) -> Saved:
    return _torch(kind, size, folder, "async_save")


def _torch(kind: Kind, size: int, folder: Path, how: str) -> Saved:
    """In an interpreter of its own, started and warmed up before its clock."""
    script = str(Path(__file__).with_name("torch_peer.py"))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    command = [_torch_python(), script, kind.name, str(size), str(folder), how]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Saved(**found)


def _torch_python() -> str:
    return os.environ.get(TORCH_VARIABLE) or sys.executable


def has_torch() -> bool:
    return TORCH_VARIABLE in os.environ or importlib.util.find_spec("torch") is not None


WAYS = (
    Way(OURS, "digest of every block, delta, manifest, fsync, rename", milepost),
    Way("one memory copy", "numpy.copyto into backed memory", memory_copy),
    Way("raw direct write", "O_DIRECT and fsync; no digest, no name, no restore", raw_direct),
    Way("numpy.save", "with fsync; nothing is checked", numpy_save),
    Way("cp", "of a file already written, with fsync; nothing is checked", copy_file),
    Way("torch DCP save", "with fsync; nothing is checked", torch_dcp, has_torch),
    Way("torch DCP async", "with fsync; nothing is checked", torch_dcp_async, has_torch),
    Way(
        "restic",
        "backup of a file already written; digests and encryption",
        restic,
        lambda: shutil.which("restic") is not None,
    ),
)
