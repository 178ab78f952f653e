"""The power is cut at random moments: every copy of the disk gives back a verified checkpoint.

Writers checkpoint into an ext4 file system on a loop device. Its image is copied while they write,
each copy is mounted, which replays its journal, and restored from.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.loop_disk import LoopDisk, mounted
from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.verify import verify_generation

pytestmark = pytest.mark.chaos
COPIES = 250
PATIENCE_S = 85.0
ENOUGH = 40
IMAGE_BYTES = 20 << 20

WRITER = textwrap.dedent(
    """
    import random, sys, time
    import numpy as np
    from milepost import Checkpointer

    folder, acknowledged, seed = sys.argv[1], open(sys.argv[2], "w"), int(sys.argv[3])
    pause = random.Random(seed)

    def hook(step):
        time.sleep(pause.choice((0, 0, 0.004, 0.015)))

    rng = np.random.default_rng(seed)
    x = rng.standard_normal(40_000)
    with Checkpointer(folder, rotation=2, compression="none", hook=hook, delta=seed > 0) as ck:
        for step in range(1_000_000):
            x[0] = step
            x[1:] += step % 3
            ck.save(step, {"x": x}, {"sum": float(x.sum())})
            ck.wait()
            acknowledged.write(f"{step}\\n")
            acknowledged.flush()
    """
)


class Writers:
    """Two processes that checkpoint into folders of the disk, and what they acknowledged."""

    def __init__(self, disk: Path, outside: Path) -> None:
        self.names = ["full", "delta"]
        self._acknowledged = [outside / f"{name}.txt" for name in self.names]
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(disk / name), str(path), str(seed)],
                stderr=(outside / f"{name}.log").open("w"),
            )
            for seed, (name, path) in enumerate(zip(self.names, self._acknowledged, strict=True))
        ]

    def last(self) -> list[int]:
        """The last step that each has heard is durable; -1 before the first."""
        for process in self._processes:
            assert process.poll() is None, "a writer died"
        return [self._last_of(path) for path in self._acknowledged]

    def end(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.wait(20)

    def _last_of(self, path: Path) -> int:
        lines = path.read_text().split() if path.exists() else []
        return int(lines[-1]) if lines else -1


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    disk = LoopDisk(tmp_path, IMAGE_BYTES)
    try:
        yield disk
    finally:
        disk.close()


@pytest.fixture
def writers(disk: LoopDisk, tmp_path: Path) -> Iterator[Writers]:
    writers = Writers(disk.folder, tmp_path)
    try:
        deadline = time.monotonic() + 60
        while min(writers.last()) < 1:
            assert time.monotonic() < deadline, "the writers did not begin"
            time.sleep(0.05)
        yield writers
    finally:
        writers.end()


def test_every_moment_leaves_a_verified_generation(
    disk: LoopDisk, writers: Writers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never older than the last one acknowledged before the copy began."""
    monkeypatch.setenv("MILEPOST_ATTEMPT", "1")  # to which the writers are the attempt before
    chance = random.Random(7)
    copy, copies, half_written, steps = tmp_path / "copy.img", 0, 0, set()
    deadline = time.monotonic() + PATIENCE_S
    while copies < COPIES and (time.monotonic() < deadline or copies < ENOUGH):
        time.sleep(chance.uniform(0, 0.02))
        acknowledged = writers.last()
        if not disk.copy(copy):
            continue
        copies += 1
        with mounted(copy, tmp_path / "copy") as found:
            half_written += any(found.glob("*/.draft*"))
            for name, least in zip(writers.names, acknowledged, strict=True):
                steps.add((name, check(found / name, least)))
    print(f"{copies} copies, {half_written} of them in the middle of a commit, {len(steps)} steps")
    assert copies >= ENOUGH
    assert half_written >= copies // 10, "many of the moments were in the middle of a commit"
    assert len(steps) > copies // 2


def check(folder: Path, least: int) -> int:
    """Restore from a copy; returns the step."""
    store = CheckpointStore(folder)
    newest = store.generations()[0]
    assert not verify_generation(store, newest)
    ck = Checkpointer(folder)
    saved = ck.restore()
    assert saved is not None
    assert saved.damages == ()
    assert saved.generation == newest
    assert saved.step >= least, f"step {least} was acknowledged"
    assert saved.arrays["x"][0] == saved.step
    assert float(saved.arrays["x"].sum()) == saved.meta["sum"]
    ck.close()
    assert not list(folder.glob(".draft*")), "what was half written is swept up"
    return saved.step
