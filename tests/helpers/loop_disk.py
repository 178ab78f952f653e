"""File systems in an image on a loop device: ext4, with copies as a power cut leaves them; btrfs."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.disks import call
from helpers.packages import have

_COMPLETED_WRITES = 4  # field of /sys/block/*/stat


class LoopDisk:
    """A mounted image of `size_bytes`. `folder` is its top."""

    def __init__(self, root: Path, size_bytes: int) -> None:
        self.image, self.folder = root / "disk.img", root / "disk"
        self.folder.mkdir()
        with self.image.open("wb") as stream:
            stream.truncate(size_bytes)
        _must("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4", str(self.image))
        self._device = _must("losetup", "--find", "--show", str(self.image)).strip()
        self._memory = mmap.mmap(-1, size_bytes)
        self._memory[:] = bytes(size_bytes)  # the kernel backs it now, not while it copies
        try:
            _must("mount", "-o", "noatime", self._device, str(self.folder))
        except BaseException:
            call("losetup", "--detach", self._device)
            raise

    def copy(self, target: Path) -> bool:
        """Copy the image as it is now, while it is written to; False when it was no moment.

        Reading takes milliseconds. When no write was completed meanwhile, then whatever the copy
        has of writes under way, a power cut at its end could have left the same on the disk.
        """
        before = self._completed_writes()
        with self.image.open("rb", buffering=0) as stream:
            stream.readinto(self._memory)
        if self._completed_writes() != before:
            return False
        target.write_bytes(self._memory)
        return True

    def close(self) -> None:
        if call("umount", str(self.folder)).returncode != 0:
            call("umount", "--lazy", str(self.folder))
        call("losetup", "--detach", self._device)

    def _completed_writes(self) -> str:
        stat = Path(f"/sys/block/{Path(self._device).name}/stat").read_text()
        return stat.split()[_COMPLETED_WRITES]


@contextlib.contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    """Mount an image, which replays its journal as after a power cut."""
    folder.mkdir(exist_ok=True)
    _must("mount", "-o", "loop,noatime", str(image), str(folder))
    try:
        yield folder
    finally:
        if call("umount", str(folder)).returncode != 0:
            call("umount", "--lazy", str(folder))


@contextlib.contextmanager
def btrfs(root: Path, size_bytes: int = 160 << 20) -> Iterator[Path]:
    """A mounted btrfs, which shares blocks between files and has quotas."""
    have("mkfs.btrfs", "btrfs-progs")
    image = root / "btrfs.img"
    with image.open("wb") as stream:
        stream.truncate(size_bytes)
    _must("mkfs.btrfs", "-q", "-f", str(image))
    with mounted(image, root / "btrfs") as folder:
        yield folder


def limited(disk: Path, name: str, size_bytes: int) -> Path:
    """A folder of a btrfs that may hold so much and no more, whoever writes."""
    folder = disk / name
    _must("btrfs", "quota", "enable", str(disk))
    _must("btrfs", "subvolume", "create", str(folder))
    set_limit(folder, size_bytes)
    return folder


def set_limit(folder: Path, size_bytes: int) -> None:
    _must("btrfs", "qgroup", "limit", str(size_bytes), str(folder))


def _must(*words: str) -> str:
    """Run a command; where this machine does not permit it, the test is skipped (in CI it fails)."""
    try:
        done = call(*words)
        trouble = done.stderr.strip() if done.returncode else None
    except FileNotFoundError:
        trouble = "there is no such program"
    if trouble is not None:
        reason = f"a file system on a loop device is not possible here: {words[0]}: {trouble}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return done.stdout
