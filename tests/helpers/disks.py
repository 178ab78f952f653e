"""Small disks that fill up or turn read-only, mounted below a test's own folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)


class SmallDisks:
    """Mounts tmpfs below `root`; every one of them is unmounted at the end of the test."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._mounted: list[Path] = []

    def mount(self, folder: Path, size_kib: int) -> Path:
        """Put an empty disk of this size at `folder`; skips the test where that is not permitted."""
        assert folder.is_relative_to(self._root)
        folder.mkdir(parents=True, exist_ok=True)
        done = call("mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(folder))
        if done.returncode != 0:
            reason = f"mounting a small file system is not permitted: {done.stderr.strip()}"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        self._mounted.append(folder)
        return folder

    def remount(self, folder: Path, options: str) -> None:
        """Change a mounted disk: `size=8m`, `ro`, `rw`."""
        assert folder in self._mounted
        done = call("mount", "-o", f"remount,{options}", str(folder))
        assert done.returncode == 0, done.stderr

    def unmount_all(self) -> None:
        for folder in reversed(self._mounted):
            if call("umount", str(folder)).returncode != 0:
                call("umount", "--lazy", str(folder))


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[SmallDisks]:
    disks = SmallDisks(tmp_path)
    try:
        yield disks
    finally:
        disks.unmount_all()
