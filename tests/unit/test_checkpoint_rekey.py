"""Keys exchanged in far tiers: no data is sent, and each generation is under one key at any time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from milepost.checkpoint.audit import read_audit
from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.crypt import UserKey, WrongKey, load_key
from milepost.checkpoint.manifest import REKEY
from milepost.checkpoint.rekey import rekey
from milepost.checkpoint.rekey_far import keys_there, rekey_remote
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote, upload_generation
from milepost.cli.ckpt import command
from milepost.errors import DataError, StorageError
from milepost.tiers import Tier
from milepost.tiers.base import Progress
from milepost.tiers.fsspec_tier import FsspecTier
from milepost.tiers.local import LocalTier

NAMES = ["000003-a0", "000002-a0", "000001-a0"]


class Told(LocalTier):
    """Counts what is sent; may stop before any one of its writing calls."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sent: dict[str, int] = {}
        self.calls, self.stop_at = 0, -1

    def _call(self, name: str, size: int) -> None:
        if self.calls == self.stop_at:
            raise KeyboardInterrupt
        self.calls += 1
        self.sent[name] = self.sent.get(name, 0) + size

    def put_file(self, local: Path, name: str, *, progress: Progress | None = None) -> None:
        self._call(name, local.stat().st_size)
        super().put_file(local, name, progress=progress)

    def put_bytes(self, name: str, data: bytes) -> None:
        self._call(name, len(data))
        super().put_bytes(name, data)

    def replace_head(self, name: str, head: bytes) -> None:
        self._call(name, len(head))
        super().replace_head(name, head)

    def delete(self, prefix: str) -> None:
        self._call(prefix, 0)
        super().delete(prefix)


class Scene:
    """Three generations, the last two deltas of the first, in scratch and in a warm tier."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "scratch"
        self.said = {name: self._key_file(name, n) for n, name in enumerate(("old", "new"))}
        self.old, self.new = (self._load(name) for name in ("old", "new"))
        self.store = CheckpointStore(self.folder)
        x = np.random.default_rng(1).standard_normal(300_000)
        with Checkpointer(self.folder, rotation=9, encrypt=self.said["old"]) as ck:
            for step in range(3):
                x[0] = step
                ck.save(step, {"x": x}, None)
                ck.wait()

    def _key_file(self, name: str, seed: int) -> dict[str, str]:
        path = self.root / f"{name}.key"
        path.write_bytes(bytes([seed + 1] * 32))
        path.chmod(0o600)
        return {"key_file": str(path)}

    def _load(self, name: str) -> UserKey:
        key = load_key(self.said[name])
        assert key is not None
        return key

    def upload(self, tier: Tier) -> Remote:
        for name in reversed(NAMES):
            upload_generation(self.store, name, tier, "")
        return Remote("warm", tier)

    def read(self, tier: Tier, key: str, place: str) -> int:
        """Restore from the tier alone; the step."""
        with Checkpointer(self.root / place, warm=tier, upload=False, encrypt=self.said[key]) as ck:
            saved = ck.restore()
        assert saved is not None
        assert saved.arrays["x"][0] == saved.step
        return saved.step


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture(params=["local", "memory"])
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Tier:
    if request.param == "memory":
        return FsspecTier(f"memory://{tmp_path.name}")
    return LocalTier(tmp_path / "warm")


@pytest.mark.parametrize("is_scratch_there", [True, False])
def test_far_copies_are_read_with_the_new_key_and_not_with_the_old_one(
    scene: Scene, tier: Tier, is_scratch_there: bool
) -> None:
    remote = scene.upload(tier)
    if is_scratch_there:
        rekey(scene.store, scene.old, scene.new)
    else:
        shutil.rmtree(scene.folder)
        scene.folder.mkdir()
    done = rekey_remote(scene.store, remote, scene.old, scene.new)
    assert [(item.generation, item.files) for item in done] == [(name, 1) for name in NAMES]
    assert {keys_there(remote, name) for name in NAMES} == {(scene.new.key_id,)}
    assert scene.read(tier, "new", "fresh") == 2
    with pytest.raises(WrongKey, match=f"under the key {scene.new.key_id}"):
        scene.read(tier, "old", "other")
    again = rekey_remote(scene.store, remote, scene.old, scene.new)
    assert {item.files for item in again} == {0}
    audit = read_audit(scene.folder)
    rows = [(r["what"], r["generation"]) for r in audit.records if r["tier"] == "warm"]
    assert rows == [("rekeyed", name) for name in NAMES]
    assert audit.problems == ()


def test_no_data_is_sent(scene: Scene, tmp_path: Path) -> None:
    tier = Told(tmp_path / "warm")
    remote = scene.upload(tier)
    size = (scene.store.path(NAMES[-1]) / "rank_0.bin").stat().st_size
    rekey(scene.store, scene.old, scene.new)
    tier.sent.clear()
    rekey_remote(scene.store, remote, scene.old, scene.new)
    assert tier.sent[f"{NAMES[-1]}/rank_0.bin"] == 4096
    assert sum(tier.sent.values()) < 60_000 < size / 10
    assert remote.prove(NAMES[0], tmp_path)
    proofs = upload_generation(scene.store, NAMES[0], tier, "")
    assert len(proofs) == 6, "scratch and the tier are the same again"


def test_an_exchange_that_is_stopped_anywhere_leaves_all_under_one_key_and_says_which(
    scene: Scene, tmp_path: Path
) -> None:
    full = LocalTier(tmp_path / "full")
    scene.upload(full)
    rekey(scene.store, scene.old, scene.new)
    calls, told = 0, []
    while True:
        tier = Told(tmp_path / f"warm{calls}")
        shutil.copytree(full.folder, tier.folder)
        remote, tier.stop_at = Remote("warm", tier), calls
        try:
            rekey_remote(scene.store, remote, scene.old, scene.new)
            break
        except KeyboardInterrupt:
            tier.stop_at = -1
        assert remote.generations() == NAMES, calls
        ((key_id,),) = {keys_there(remote, name) for name in NAMES}
        word = "old" if key_id == scene.old.key_id else "new"
        told.append(word)
        # The delta needs its base under the same key: restored with that one alone.
        assert scene.read(tier, word, f"r{calls}") == 2
        if calls % 2:  # the next process that uploads there finishes it, without a key
            Checkpointer(tmp_path / f"next{calls}", warm=tier)._open().close()
        else:
            rekey_remote(scene.store, remote, scene.old, scene.new)
        assert (REKEY in tier.list()) is False
        assert scene.read(tier, word if calls % 2 else "new", f"again{calls}") == 2
        calls += 1
    # The record; a page, two flags deleted and two put for each of three; the record deleted.
    assert told == ["old"] + ["new"] * (3 * 5 + 1)


def test_a_process_that_was_rekeyed_brings_its_tier_along(scene: Scene, tmp_path: Path) -> None:
    """Only scratch was named to `rekey`; the next upload of a delta needs its base there."""
    tier = Told(tmp_path / "warm")
    remote = scene.upload(tier)
    rekey(scene.store, scene.old, scene.new)
    with pytest.raises(DataError, match="under another key than the same generation"):
        upload_generation(scene.store, NAMES[0], tier, "")
    tier.sent.clear()
    with Checkpointer(scene.folder, warm=tier, rotation=9, encrypt=scene.said["new"]) as ck:
        saved = ck.restore()
        assert saved is not None
        ck.save(3, saved.arrays, None)
    assert tier.sent[f"{NAMES[-1]}/rank_0.bin"] == 4096, "of the base its first page only"
    assert keys_there(remote, NAMES[-1]) == (scene.new.key_id,)
    saved = Checkpointer(
        tmp_path / "fresh", warm=tier, upload=False, encrypt=scene.said["new"]
    ).restore()
    assert saved is not None
    assert saved.step == 3


def test_damage_at_the_far_end_is_not_blessed(scene: Scene, tmp_path: Path) -> None:
    remote = scene.upload(LocalTier(tmp_path / "warm"))
    shutil.rmtree(scene.folder)
    scene.folder.mkdir()
    path = tmp_path / "warm" / NAMES[-1] / "rank_0.bin"
    data = bytearray(path.read_bytes())
    data[9000] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="digest differs"):
        rekey_remote(scene.store, remote, scene.old, scene.new)
    assert {keys_there(remote, name) for name in NAMES} == {(scene.old.key_id,)}


def test_a_base_is_not_taken_from_what_is_there_alone(scene: Scene, tmp_path: Path) -> None:
    """A delta that rotation removed here is there still: it would be readable with neither key."""
    tier = LocalTier(tmp_path / "warm")
    remote = scene.upload(tier)
    scene.store.remove(NAMES[1])
    rekey(scene.store, scene.old, scene.new)
    with pytest.raises(DataError, match="under another key than the same") as caught:
        upload_generation(scene.store, NAMES[0], tier, "", key_id=scene.new.key_id)
    assert "ckpt rekey" in str(caught.value.fix)
    assert scene.read(tier, "old", "fresh") == 2
    rekey_remote(scene.store, remote, scene.old, scene.new)
    assert upload_generation(scene.store, NAMES[0], tier, "", key_id=scene.new.key_id)


def test_a_page_that_did_not_arrive_is_noticed(scene: Scene, tmp_path: Path) -> None:
    class Deaf(LocalTier):
        def replace_head(self, name: str, head: bytes) -> None:
            pass

    remote = scene.upload(Deaf(tmp_path / "warm"))
    rekey(scene.store, scene.old, scene.new)
    with pytest.raises(StorageError, match="differs at the far end"):
        rekey_remote(scene.store, remote, scene.old, scene.new)


def run(*words: object) -> Any:
    return CliRunner().invoke(command, [*map(str, words)], catch_exceptions=True)


def test_by_hand_with_words_about_what_is_under_which_key(scene: Scene, tmp_path: Path) -> None:
    warm, cold = tmp_path / "warm", tmp_path / "cold"
    for place in (warm, cold):
        scene.upload(LocalTier(place))
    words = ["--warm", warm, "--cold", cold]
    files = [scene.said[name]["key_file"] for name in ("old", "new")]
    (cold / NAMES[1] / "rank_0.bin").unlink()
    stopped = run("rekey", scene.folder, "--key-file", files[0], "--new-key-file", files[1], *words)
    assert stopped.exception is not None
    assert "milepost ckpt keys" in "".join(stopped.exception.__notes__)
    rows = run("keys", scene.folder, "--warm", warm).output
    assert rows.count(scene.new.key_id) == 6
    shutil.copy(scene.store.path(NAMES[1]) / "rank_0.bin", cold / NAMES[1])
    done = run(
        *("rekey", scene.folder, "--key-file", files[0], "--new-key-file", files[1]),
        *(*words, "--json"),
    )
    said = json.loads(done.output)
    assert set(said["files"].values()) == {0}
    assert said["tiers"]["warm"] == dict.fromkeys(NAMES, 0)
    assert set(said["tiers"]["cold"].values()) == {0}, "what was begun was finished first"
    assert "rekeyed   000003-a0  (cold)" in run("audit", scene.folder).output
    told = json.loads(run("keys", scene.folder, *words, "--json").output)
    assert len(told) == 9
    assert {row["key_ids"][0] for row in told} == {scene.new.key_id}
