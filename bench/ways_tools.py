"""Ways to save a state that is a file already: cp, rclone, restic."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np

from bench.saved import Saved, Watch, fsync, growth, restore_s
from bench.states import Kind, State


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
    copy, back = folder / "copy.bin", folder / "back.bin"
    restored_s = restore_s(
        folder,
        lambda: subprocess.run(["cp", str(copy), str(back)], check=True),
        lambda _: _taken(back, state),
        state,
    )
    return Saved(watch.wall_s, watch.wall_s, watch.cpu_s, stored, restored_s)


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
    back = there / source.relative_to("/")
    restored_s = restore_s(
        repository,
        lambda: _restic(folder, "restore", "latest", "--target", str(there)),
        lambda _: _taken(back, state),
        state,
    )
    return Saved(watch.wall_s, watch.wall_s, watch.cpu_s, stored, restored_s)


def rclone(kind: Kind, size: int, folder: Path) -> Saved:
    """Local copy of a file that was written before; rclone compares digests after it."""
    state, source = kind.make(size), folder / "state.bin"
    kind.change(state)
    state.tofile(source)
    with growth(folder) as grown, Watch() as watch:
        _rclone(source, folder / "copy.bin")
        fsync(folder / "copy.bin")
        fsync(folder)
    stored = grown()
    copy, back = folder / "copy.bin", folder / "back.bin"
    restored_s = restore_s(
        folder, lambda: _rclone(copy, back), lambda _: _taken(back, state), state
    )
    return Saved(watch.wall_s, watch.wall_s, watch.cpu_s, stored, restored_s)


def _taken(path: Path, like: State) -> State:
    """What a tool restored to a file, which it must make anew the next time."""
    found: State = np.fromfile(path, like.dtype)
    path.unlink()
    return found


def _rclone(source: Path, target: Path) -> None:
    command = ["rclone", "--config", os.devnull, "copyto", str(source), str(target)]
    subprocess.run(command, check=True)


def _restic(folder: Path, *words: str) -> None:
    environment = {
        **os.environ,
        "RESTIC_REPOSITORY": str(folder / "repository"),
        "RESTIC_PASSWORD": "bench",
        "RESTIC_CACHE_DIR": str(folder / "cache"),
    }
    command = ["restic", "--quiet", *words]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
