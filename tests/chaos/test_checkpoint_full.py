"""A disk or a quota that is used up at any one write of a checkpoint: the old generation stands."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.disks import SmallDisks, disks  # noqa: F401 - a fixture
from helpers.loop_disk import btrfs, limited, set_limit
from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.verify import verify_generation
from milepost.errors import StorageError

pytestmark = pytest.mark.chaos
WORDS = {errno.ENOSPC: "is full", errno.EDQUOT: "is over quota"}
CALLS = ("pwrite", "posix_fallocate", "ftruncate", "fsync", "rename", "mkdir")


class Fault:
    """Counts the calls that ask the file system for room, and lets one of them fail."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.fails_at: int | None = None
        self.number = errno.ENOSPC
        for name in CALLS:
            patch.setattr(os, name, self._wrapped(name, getattr(os, name)))
        self._open = io.open
        patch.setattr(io, "open", self._opened)

    def reset(self, fails_at: int | None, number: int = errno.ENOSPC) -> None:
        self.names, self.fails_at, self.number = [], fails_at, number

    def count(self, name: str) -> None:
        self.names.append(name)
        index, at = len(self.names) - 1, self.fails_at
        # What was to be reserved beyond need may fail; what is needed is asked for again.
        is_again = at is not None and index > at and self.names[at] == name == "posix_fallocate"
        if index == at or is_again:
            raise OSError(self.number, os.strerror(self.number))

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name != "mkdir" or not os.path.isdir(args[0]):
                self.count(name)
            return real(*args, **kwargs)

        return call

    def _opened(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        stream = self._open(file, mode, *args, **kwargs)
        if not set("wxa+") & set(mode):
            return stream
        return _Stream(stream, self)


class _Stream:
    """A stream whose writes are counted."""

    def __init__(self, stream: Any, fault: Fault) -> None:
        self._stream, self._fault = stream, fault

    def write(self, data: Any) -> int:
        self._fault.count("write")
        return int(self._stream.write(data))

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def save(folder: Path, step: int, delta: bool = True) -> None:
    """Restore, save one more generation, and rotate."""
    x = np.random.default_rng(1).standard_normal(150_000)
    with Checkpointer(folder, rotation=2, compression="none", delta=delta) as ck:
        saved = ck.restore()
        x = x if saved is None else saved.arrays["x"]
        x[step * 1000] = step
        ck.save(step, {"x": x}, {"step": step})
        ck.wait()


def newest(folder: Path) -> tuple[int, str]:
    with Checkpointer(folder) as ck:
        saved = ck.restore()
    assert saved is not None
    assert saved.damages == ()
    assert saved.meta == {"step": saved.step}
    assert saved.arrays["x"][saved.step * 1000] == saved.step
    return saved.step, saved.generation


@pytest.mark.parametrize("delta", [True, False])
def test_no_room_at_any_write(tmp_path: Path, delta: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "ckpt"
    for step in range(3):
        save(folder, step)
    fault = Fault(monkeypatch)
    save(folder, 3, delta)
    points = list(fault.names)
    assert {"pwrite", "write", "fsync", "rename", "mkdir"} <= set(points)
    assert delta or "posix_fallocate" in points, "what is written in full is reserved first"
    step = 4
    for point in range(len(points)):
        fault.reset(None)
        before, name = newest(folder)
        store = CheckpointStore(folder)
        number = (errno.ENOSPC, errno.EDQUOT)[point % 2]
        fault.reset(point, number)
        with pytest.raises(StorageError, match=WORDS[number]) as caught:
            save(folder, step, delta)
        fault.reset(None)
        assert str(folder) in str(caught.value.where), points[point]
        after, _ = newest(folder)
        assert after in (before, step), f"{points[point]}: the old one stands, or the new one does"
        assert name in store.generations() or after == step
        assert all(not verify_generation(store, one) for one in store.generations())
        assert not list(folder.glob(".draft*")), "what did not fit was removed"
        step += 1
    save(folder, step)
    assert newest(folder)[0] == step, "with room again it goes on"


def test_a_real_disk_that_lacks_any_number_of_pages(
    disks: SmallDisks,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is reserved here, so each page written is the one that does not fit."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not offered")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    disk = disks.mount(tmp_path / "disk", 16 << 10)
    folder = disk / "ckpt"
    save(folder, 0)
    failed = 0
    steps = range(1, 40)
    for step in steps:
        before, _ = newest(folder)
        room = os.statvfs(disk)
        (disk / "ballast").write_bytes(bytes((room.f_bavail - step * 9) * room.f_frsize))
        try:
            save(folder, step)
        except StorageError as error:
            failed += 1
            assert "is full" in error.what
        (disk / "ballast").unlink()
        after, _ = newest(folder)
        assert after in (before, step)
        store = CheckpointStore(folder)
        assert all(not verify_generation(store, one) for one in store.generations())
    assert 5 < failed < len(steps), "both ends were met"


def test_a_real_quota_that_is_used_up(tmp_path: Path) -> None:
    with btrfs(tmp_path) as disk:
        folder = limited(disk, "mine", 24 << 20)
        save(folder / "ckpt", 0, delta=False)
        step = 1
        while True:
            before, name = newest(folder / "ckpt")
            (folder / f"ballast{step}").write_bytes(os.urandom(3 << 20))
            try:
                save(folder / "ckpt", step, delta=False)
            except StorageError as error:
                assert "is over quota" in error.what
                break
            step += 1
            assert step < 12, "the quota is met"
        set_limit(folder, 64 << 20)
        assert newest(folder / "ckpt") == (before, name), "the one before stands"
        save(folder / "ckpt", step, delta=False)
        assert newest(folder / "ckpt")[0] == step, "with a larger quota it goes on"
