"""A disk that is nearly full is drained and pruned before the next checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from helpers.disks import SmallDisks, disks  # noqa: F401 - a fixture
from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.retention import Retention
from milepost.checkpoint.room import Room
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote
from milepost.checkpoint.uploader import Target, Uploader
from milepost.checkpoint.verify import verify_generation
from milepost.errors import StorageError
from milepost.tiers.local import LocalTier

TOTAL = 1_000_000


def usage(used: int) -> Callable[[Path], tuple[int, int, int]]:
    return lambda folder: (TOTAL, used, TOTAL - used)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """Four generations of about 12 kB."""
    with Checkpointer(tmp_path / "scratch", rotation=4, delta=False) as ck:
        for step in range(4):
            ck.save(step, {"x": np.arange(10)}, None)
            ck.wait()
    return CheckpointStore(tmp_path / "scratch")


def test_nothing_is_done_while_there_is_room(store: CheckpointStore) -> None:
    size = store.manifest("000004-a0").size_bytes
    room = Room(store, Retention(1), lambda: None, usage=usage(850_000 - size - 1))
    assert room.make() == ()
    assert (len(store.generations()), room.drain_count) == (4, 0)
    room.usage = usage(850_000 - size)
    assert room.make() == ("000001-a0", "000002-a0", "000003-a0")
    assert room.drain_count == 1


def test_without_a_tier_only_what_the_rules_allow_goes_and_gold_stays(
    store: CheckpointStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.set_gold("000001-a0")
    room = Room(store, Retention(4, gold_every=2), lambda: None, usage=usage(900_000))
    assert room.make() == ("000003-a0",)
    assert "nearly full; deleted 000003-a0; 90% are used" in capsys.readouterr().err
    assert room.make() == ()
    assert "nothing could be deleted" in capsys.readouterr().err


def test_it_is_drained_before_it_is_pruned(store: CheckpointStore, tmp_path: Path) -> None:
    remote = Remote("warm", LocalTier(tmp_path / "warm"))
    uploader = Uploader(store, [Target(remote)])
    uploader.offer("000004-a0")
    room = Room(store, Retention(4, gold_every=1), lambda: uploader, usage=usage(900_000))
    assert room.make() == ("000001-a0", "000002-a0", "000003-a0")
    assert remote.generations() == ["000004-a0"], "sent before anything was deleted"
    uploader.close(30)


def test_a_small_disk_goes_on_taking_checkpoints(
    disks: SmallDisks,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Four would be kept, three fit."""
    disk = disks.mount(tmp_path / "disk", 24 << 10)
    warm = LocalTier(tmp_path / "warm")
    rng = np.random.default_rng(1)
    with Checkpointer(disk / "ckpt", warm=warm, rotation=4, compression="none") as ck:
        for step in range(9):
            ck.save(step, {"x": rng.standard_normal(800_000)}, None)
            ck.wait()
            newest = CheckpointStore(disk / "ckpt").generations()[0]
            assert newest == f"{step + 1:06}-a0"
    store = CheckpointStore(disk / "ckpt")
    assert 1 <= len(store.generations()) <= 3
    assert all(not verify_generation(store, name) for name in store.generations())
    assert Remote("warm", warm).generations()[0] == "000009-a0"


def test_damaged_evidence_is_the_last_to_go(store: CheckpointStore) -> None:
    evidence = store.folder / ".damaged-000009-a0-x"
    evidence.mkdir()
    room = Room(store, Retention(1), lambda: None, usage=usage(900_000))
    assert room.make() == ("000001-a0", "000002-a0", "000003-a0", evidence.name)
    assert not evidence.exists()


def test_no_room_for_what_another_tier_has_is_no_damage(
    disks: SmallDisks,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Older work in scratch is not taken for it: with room the newest one is there."""
    disk = disks.mount(tmp_path / "disk", 16 << 10)
    warm = tmp_path / "warm"
    rng = np.random.default_rng(1)
    with Checkpointer(disk / "ckpt", warm=LocalTier(warm), delta=False, compression="none") as ck:
        for step in range(2):
            ck.save(step, {"x": rng.standard_normal(500_000)}, None)
            ck.wait()
    store = CheckpointStore(disk / "ckpt")
    (store.path("000002-a0") / "rank_0.bin").unlink()
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(9 << 20))
    with pytest.raises(StorageError, match="is full"):
        Checkpointer(disk / "ckpt", warm=LocalTier(warm), upload=False).restore()
    assert not list(store.folder.glob(".draft*"))
    ballast.unlink()
    saved = Checkpointer(disk / "ckpt", warm=LocalTier(warm), upload=False).restore()
    assert saved is not None
    assert (saved.step, saved.tier, saved.lost.seconds) == (1, "warm", 0.0)
