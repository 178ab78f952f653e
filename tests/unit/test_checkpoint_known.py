"""What was lost is told in seconds, also when nothing is left of what was lost."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from milepost.checkpoint.audit import read_audit
from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.known import known_here, known_there, names_there, note_there
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote
from milepost.clock import epoch
from milepost.tiers.base import Progress
from milepost.tiers.local import LocalTier


class Slow(LocalTier):
    """Takes the data of the first generation; what comes later is still on its way."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_stuck, self.go_on = threading.Event(), threading.Event()
        self.noted: list[str] = []
        self.heard = threading.Condition()

    def put_file(self, local: Path, name: str, *, progress: Progress | None = None) -> None:
        if not name.startswith("000001"):
            self.is_stuck.set()
            assert self.go_on.wait(30)
            raise OSError("the node is gone")
        super().put_file(local, name, progress=progress)

    def put_bytes(self, name: str, data: bytes) -> None:
        super().put_bytes(name, data)
        with self.heard:
            self.noted.append(name)
            self.heard.notify_all()

    def wait_for_note(self, name: str) -> None:
        with self.heard:
            assert self.heard.wait_for(lambda: f"known/{name}.json" in self.noted, 30)


class Node:
    """A node with a disk of its own that dies after four commits; warm has the first of them."""

    def __init__(self, root: Path) -> None:
        self.disk, self.warm = root / "disk", Slow(root / "warm")
        self.ck = Checkpointer(self.disk, warm=self.warm, rotation=9, delta=False)
        for step in range(4):
            self.ck.save(step * 10, {"x": np.full(100, step)}, None)
            self.ck.wait()
            assert self.ck._committer is not None
            self.ck._committer.settle()
            if step == 0:
                assert self.ck._session._uploader is not None
                assert self.ck._session._uploader.wait(30)
        assert self.warm.is_stuck.wait(30)
        self.warm.wait_for_note("000004-a0")
        store = CheckpointStore(self.disk)
        created = [epoch(store.manifest(name).created) for name in reversed(store.generations())]
        self.lost_s = created[3] - created[0]

    def die(self) -> None:
        """Its disk is gone; what it was sending ends."""
        shutil.rmtree(self.disk)
        self.warm.go_on.set()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_disk_that_is_gone_with_its_newest_generations(
    node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node.die()
    warm = LocalTier(tmp_path / "warm")
    assert names_there(Remote("warm", warm)) == ["000004-a0"], "notes of older ones are removed"
    with Checkpointer(tmp_path / "other", warm=warm) as ck:
        saved = ck.restore()
        assert saved is not None
        assert (saved.step, saved.tier) == (0, "warm")
        assert (saved.lost.steps, saved.lost.seconds) == (30, pytest.approx(node.lost_s, abs=2e-3))
        assert "000004-a0: committed at 20" in saved.damages[-1]
        assert "in no tier any more" in saved.damages[-1]
        ck.save(1, saved.arrays, None)
    said = capsys.readouterr().err
    assert f"lost 30 steps, {node.lost_s:.1f} s of work" in said
    assert ck.commits[0].generation == "000005-a0", "no name is used twice"
    with Checkpointer(tmp_path / "third", warm=warm) as ck:
        saved = ck.restore()
    assert saved is not None
    assert (saved.lost.seconds, saved.damages) == (0.0, ()), "it is told once"


def test_without_anything_left_it_says_what_begins_anew(
    node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node.die()
    shutil.rmtree(tmp_path / "warm" / "000001-a0")
    with Checkpointer(tmp_path / "other", warm=LocalTier(tmp_path / "warm")) as ck:
        assert ck.restore() is None
    said = capsys.readouterr().err
    assert "000004-a0 was committed at 20" in said
    assert "all work up to step 30 is done again" in said


def test_the_audit_log_knows_what_vanished_from_its_folder(tmp_path: Path) -> None:
    with Checkpointer(tmp_path, rotation=2, delta=False) as ck:
        for step in range(4):
            ck.save(step, {"x": np.arange(3)}, None)
            ck.wait()
    store = CheckpointStore(tmp_path)
    assert [known.name for known in known_here(store)] == ["000003-a0", "000004-a0"]
    times = {r["generation"]: epoch(r["time"]) for r in read_audit(tmp_path).records}
    created_s = epoch(store.manifest("000003-a0").created)
    shutil.rmtree(tmp_path / "000004-a0")
    saved = Checkpointer(tmp_path).restore()
    assert saved is not None
    assert saved.lost.steps is None, "the log does not know"
    assert saved.lost.seconds == pytest.approx(times["000004-a0"] - created_s)
    with Checkpointer(tmp_path) as ck:
        ck.save(9, {"x": np.arange(3)}, None)
    assert ck.commits[0].generation == "000005-a0"


def spoil_note(warm: Path) -> None:
    (note,) = (warm / "known").iterdir()
    note.write_text("{")


def make_notes_unwritable(warm: Path) -> None:
    shutil.rmtree(warm / "known")
    (warm / "known").touch()


@pytest.mark.parametrize("harm", [spoil_note, make_notes_unwritable])
def test_notes_that_are_damaged_or_cannot_be_written_cost_no_checkpoint(
    tmp_path: Path, harm: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    warm = tmp_path / "warm"
    with Checkpointer(tmp_path / "disk", warm=LocalTier(warm)) as ck:
        ck.save(0, {"x": np.arange(3)}, None)
    harm(warm)
    with Checkpointer(tmp_path / "disk", warm=LocalTier(warm)) as ck:
        saved = ck.restore()
        assert saved is not None
        ck.save(1, saved.arrays, None)
    assert Remote("warm", LocalTier(warm)).generations()[0] == "000002-a0"
    if harm is make_notes_unwritable:
        assert capsys.readouterr().err.count("is not noted in warm") == 1
    else:
        assert [known.step for known in known_there(Remote("warm", LocalTier(warm)))] == [1]


def test_a_note_is_made_once(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "disk") as ck:
        ck.save(7, {"x": np.arange(3)}, None)
    manifest = CheckpointStore(tmp_path / "disk").manifest("000001-a0")
    remote = Remote("warm", LocalTier(tmp_path / "warm"), "run/0001")
    for _ in range(2):
        note_there(remote, manifest)
    (known,) = known_there(remote)
    assert (known.name, known.step, known.created) == ("000001-a0", 7, manifest.created)
    assert remote.generations() == []
