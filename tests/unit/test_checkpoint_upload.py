"""Generations in other tiers: sent, proved, fetched, and what happens in between."""

from __future__ import annotations

import shutil
import threading
import uuid
from pathlib import Path

import numpy as np
import pytest

from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.manifest import MANIFEST, OK
from milepost.checkpoint.prune import prune_remote
from milepost.checkpoint.retention import Retention
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote, upload_generation
from milepost.checkpoint.uploader import Target, Uploader
from milepost.checkpoint.verify import verify_generation
from milepost.durable import digest_file
from milepost.errors import DataError, Refused, StorageError
from milepost.tiers import Tier
from milepost.tiers.base import Progress
from milepost.tiers.fsspec_tier import FsspecTier
from milepost.tiers.local import LocalTier


class Recording(LocalTier):
    """Notes what is sent; may fail or spoil what arrives."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sent: list[str] = []
        self.fail_at: str | None = None
        self.spoil: str | None = None

    def put_file(self, local: Path, name: str, *, progress: Progress | None = None) -> None:
        if self.fail_at and name.endswith(self.fail_at):
            raise StorageError("the line is cut")
        super().put_file(local, name, progress=progress)
        self.sent.append(name)
        if self.spoil and name.endswith(self.spoil):
            path = self.folder / name
            data = bytearray(path.read_bytes())
            data[100] ^= 1
            path.write_bytes(data)

    def put_bytes(self, name: str, data: bytes) -> None:
        super().put_bytes(name, data)
        self.sent.append(name)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """A full generation and three deltas of it."""
    x = np.random.default_rng(1).standard_normal(300_000)
    with Checkpointer(tmp_path / "scratch", rotation=9) as ck:
        for step in range(4):
            x[0] = step
            ck.save(step, {"x": x}, {"step": step})
            ck.wait()
    return CheckpointStore(tmp_path / "scratch")


@pytest.fixture(params=["local", "memory"])
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Tier:
    if request.param == "local":
        return LocalTier(tmp_path / "warm")
    return FsspecTier(f"memory://{uuid.uuid4().hex}")


def all_sent(ck: Checkpointer) -> None:
    """Wait for all that follows a commit, the upload too."""
    assert ck._committer is not None
    assert ck._session._uploader is not None
    ck._committer.settle()
    assert ck._session._uploader.wait(30)


def test_data_first_then_manifest_then_ok(store: CheckpointStore, tmp_path: Path) -> None:
    tier = Recording(tmp_path / "warm")
    proofs = upload_generation(store, "000002-a0", tier, "run/0001")
    names = ["rank_0.bin", MANIFEST, OK]
    assert tier.sent == [f"run/0001/{g}/{n}" for g in ("000001-a0", "000002-a0") for n in names]
    assert [proof.path for proof in proofs] == tier.sent
    for proof in proofs:
        assert tier.stat(proof.path) == proof.size_bytes
        assert digest_file(tmp_path / "warm" / proof.path) == proof.digest


def test_only_what_is_missing_is_sent(store: CheckpointStore, tmp_path: Path) -> None:
    tier = Recording(tmp_path / "warm")
    upload_generation(store, "000002-a0", tier, "c")
    tier.sent.clear()
    upload_generation(store, "000003-a0", tier, "c")
    assert [name for name in tier.sent if name.endswith(".bin")] == ["c/000003-a0/rank_0.bin"]
    again = upload_generation(store, "000003-a0", tier, "c")
    assert len(again) == 6, "all files are proved once more"


def test_an_upload_that_was_cut_goes_on(store: CheckpointStore, tmp_path: Path) -> None:
    tier, far = Recording(tmp_path / "warm"), Remote("warm", LocalTier(tmp_path / "warm"), "c")
    tier.fail_at = "000002-a0/rank_0.bin"
    with pytest.raises(StorageError, match="cut"):
        upload_generation(store, "000002-a0", tier, "c")
    assert far.generations() == ["000001-a0"], "what is not whole is not listed"
    half = tmp_path / "warm" / "c" / "000002-a0" / "rank_0.bin"
    half.parent.mkdir()
    half.write_bytes(b"half")
    tier.fail_at = None
    upload_generation(store, "000002-a0", tier, "c")
    assert far.generations() == ["000002-a0", "000001-a0"]


def test_what_differs_at_the_far_end_is_no_upload(store: CheckpointStore, tmp_path: Path) -> None:
    tier = Recording(tmp_path / "warm")
    tier.spoil = "rank_0.bin"
    with pytest.raises(StorageError, match="differs at the far end"):
        upload_generation(store, "000001-a0", tier, "c")
    assert tier.list() == [], "it was deleted there"


def test_a_damaged_generation_is_not_sent(store: CheckpointStore, tmp_path: Path) -> None:
    path = store.path("000001-a0") / "rank_0.bin"
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    tier = Recording(tmp_path / "warm")
    with pytest.raises(DataError, match="block 0 is damaged"):
        upload_generation(store, "000002-a0", tier, "c")
    assert tier.sent == []


def test_a_superseded_attempt_does_not_upload(store: CheckpointStore, tier: Tier) -> None:
    def fence() -> None:
        raise Refused("superseded")

    with pytest.raises(Refused):
        upload_generation(store, "000001-a0", tier, "c", fence=fence)
    assert tier.list() == []


def test_scratch_is_lost_and_warm_takes_over(
    store: CheckpointStore, tier: Tier, tmp_path: Path
) -> None:
    upload_generation(store, "000003-a0", tier, "")
    shutil.rmtree(store.folder)
    with Checkpointer(store.folder, warm=tier) as ck:
        saved = ck.restore()
        assert saved is not None
        assert (saved.step, saved.tier, saved.damages) == (2, "warm", ())
        assert saved.arrays["x"][0] == 2
        ck.save(3, saved.arrays, saved.meta)
        last = ck.wait()
        assert last is not None
        assert last.generation == "000004-a0"
        assert last.bytes_stored < 10_000, "the next delta refers to what was fetched"
    assert Remote("warm", tier).generations()[0] == "000004-a0"
    assert not verify_generation(store, "000004-a0")


def test_damage_in_scratch_is_mended_by_warm(
    store: CheckpointStore, tier: Tier, tmp_path: Path
) -> None:
    upload_generation(store, "000004-a0", tier, "")
    for name in ("000001-a0", "000004-a0"):
        path = store.path(name) / "rank_0.bin"
        data = bytearray(path.read_bytes())
        data[4096 + 50] ^= 1
        path.write_bytes(data)
    with Checkpointer(store.folder, warm=tier) as ck:
        saved = ck.restore()
    assert saved is not None
    assert (saved.step, saved.tier) == (3, "warm")
    assert saved.lost.steps == 0
    assert "scratch" in saved.damages[0]
    assert "block 0 is damaged" in saved.damages[0]
    assert len(list(store.folder.glob(".damaged-*"))) == 2, "the evidence is kept"


def test_cold_is_asked_after_warm(store: CheckpointStore, tmp_path: Path) -> None:
    warm, cold = LocalTier(tmp_path / "warm"), LocalTier(tmp_path / "cold")
    upload_generation(store, "000004-a0", warm, "")
    upload_generation(store, "000004-a0", cold, "")
    shutil.rmtree(store.folder)
    (tmp_path / "warm" / "000004-a0" / "rank_0.bin").write_bytes(b"spoilt")
    with Checkpointer(store.folder, warm=warm, cold=cold, upload=False) as ck:
        saved = ck.restore()
    assert saved is not None
    assert (saved.step, saved.tier) == (3, "cold")
    assert "warm: 000004-a0" in saved.damages[0]


def test_a_later_attempt_counts_more_than_a_higher_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node comes back with what it had written before another node took over."""
    warm = LocalTier(tmp_path / "warm")
    for attempt, node, steps in (("1", "a", 3), ("2", "b", 1)):
        monkeypatch.setenv("MILEPOST_ATTEMPT", attempt)
        with Checkpointer(tmp_path / node, warm=warm, upload=attempt == "2") as ck:
            for step in range(steps):
                ck.save(step, {"x": np.array(int(attempt))}, None)
    monkeypatch.setenv("MILEPOST_ATTEMPT", "3")
    with Checkpointer(tmp_path / "a", warm=warm) as ck:
        saved = ck.restore()
        assert saved is not None
        assert saved.generation == "000001-a2"
        assert saved.arrays["x"] == 2
        ck.save(9, saved.arrays, None)
        assert ck.wait() is not None
    assert ck.commits[0].generation == "000004-a3"


def test_the_background_upload_sends_and_prunes(tmp_path: Path) -> None:
    warm = LocalTier(tmp_path / "warm")
    with Checkpointer(tmp_path / "scratch", warm=warm, rotation=2, delta=False) as ck:
        for step in range(5):
            ck.save(step, {"x": np.arange(step)}, None)
            all_sent(ck)
    assert Remote("warm", warm).generations() == ["000005-a0", "000004-a0"]
    assert CheckpointStore(tmp_path / "scratch").generations() == ["000005-a0", "000004-a0"]


def test_what_is_committed_is_sent_also_when_the_application_fails(tmp_path: Path) -> None:
    """Its disk may go with the job."""
    tier = Slow(tmp_path / "warm")

    def work() -> None:
        with Checkpointer(tmp_path / "scratch", warm=tier) as ck:
            ck.save(0, {"x": np.arange(3)}, None)
            ck.wait()
            assert tier.is_sending.wait(30)
            threading.Timer(0.1, tier.may_send.set).start()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert Remote("warm", tier).generations() == ["000001-a0"]


def test_a_failed_upload_is_not_a_good_end(tmp_path: Path) -> None:
    tier = Recording(tmp_path / "warm")
    tier.fail_at = "rank_0.bin"
    with (
        pytest.raises(StorageError, match="cut"),
        Checkpointer(tmp_path / "scratch", warm=tier) as ck,
    ):
        ck.save(0, {"x": np.arange(3)}, None)
    assert CheckpointStore(tmp_path / "scratch").generations() == ["000001-a0"]


def test_an_uploader_that_recovers_has_no_error(store: CheckpointStore, tmp_path: Path) -> None:
    tier = Recording(tmp_path / "warm")
    tier.fail_at = "rank_0.bin"
    uploader = Uploader(store, [Target(Remote("warm", tier))])
    uploader.offer("000001-a0")
    assert uploader.wait(30)
    assert isinstance(uploader.error, StorageError)
    tier.fail_at = None
    uploader.offer("000004-a0")
    uploader.close(30)
    assert list(uploader.sent) == ["000001-a0", "000004-a0"], "the base, then its delta"


def test_pruning_a_tier_keeps_bases(store: CheckpointStore, tier: Tier) -> None:
    remote = Remote("warm", tier, "c")
    for name in reversed(store.generations()):
        upload_generation(store, name, tier, "c")
    assert prune_remote(remote, Retention(1), frozenset()) == ("000002-a0", "000003-a0")
    assert remote.generations() == ["000004-a0", "000001-a0"]


def test_a_manifest_that_was_changed_at_the_far_end(store: CheckpointStore, tmp_path: Path) -> None:
    remote = Remote("warm", LocalTier(tmp_path / "warm"))
    upload_generation(store, "000001-a0", remote.tier, "")
    path = tmp_path / "warm" / "000001-a0" / MANIFEST
    path.write_text(path.read_text().replace('"step": 0', '"step": 9'))
    with pytest.raises(DataError, match="does not match the digest in OK"):
        remote.manifest("000001-a0")
    shutil.rmtree(store.folder)
    with (
        pytest.raises(DataError, match="no generation can be restored"),
        Checkpointer(store.folder, warm=remote.tier) as ck,
    ):
        ck.restore()


def test_a_tier_is_proved_without_scratch(
    store: CheckpointStore, tier: Tier, tmp_path: Path
) -> None:
    proofs = upload_generation(store, "000002-a0", tier, "c")
    shutil.rmtree(store.folder)
    assert Remote("warm", tier, "c").prove("000002-a0", tmp_path) == proofs
    tier.delete("c/000001-a0/rank_0.bin")
    with pytest.raises(DataError, match="is missing"):
        Remote("warm", tier, "c").prove("000002-a0", tmp_path)


def test_rotation_reads_a_base_once(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from milepost.checkpoint import verify
    from milepost.checkpoint.prune import prune

    read: list[str] = []
    real = verify.blocks_digest
    monkeypatch.setattr(
        verify, "blocks_digest", lambda path: (read.append(path.parent.name), real(path))[1]
    )
    trusted: set[str] = set()
    prune(store, Retention(2), trusted=trusted)
    assert read == ["000004-a0", "000001-a0"]
    prune(store, Retention(1), trusted=trusted)
    assert read[2:] == ["000004-a0"]


def test_from_warm_to_cold(tmp_path: Path) -> None:
    """Warm keeps what rotation keeps, cold keeps what is not too old."""
    warm, cold = LocalTier(tmp_path / "warm"), LocalTier(tmp_path / "cold")
    place = tmp_path / "scratch"
    with Checkpointer(place, warm=warm, cold=cold, to="cold", rotation=2, delta=False) as ck:
        for step in range(5):
            ck.save(step, {"x": np.arange(step)}, None)
            all_sent(ck)
    names = [f"00000{number}-a0" for number in (5, 4, 3, 2, 1)]
    assert Remote("warm", warm).generations() == names[:2]
    assert Remote("cold", cold).generations() == names
    shutil.rmtree(place)
    shutil.rmtree(tmp_path / "warm")
    with Checkpointer(place, warm=warm, cold=cold, upload=False) as ck:
        saved = ck.restore()
    assert saved is not None
    assert (saved.step, saved.tier) == (4, "cold")


def test_what_goes_on_to_cold_is_a_rule(tmp_path: Path) -> None:
    """Every fourth, what a person marked, and in the end the last one."""
    warm, cold = LocalTier(tmp_path / "warm"), LocalTier(tmp_path / "cold")
    place = tmp_path / "scratch"
    tiers = {"warm": warm, "cold": cold, "to": "cold", "cold_every": 4}
    with Checkpointer(place, **tiers, rotation=9, delta=False) as ck:
        for step in range(7):
            if step == 5:
                ck._store.hook = lambda name: (
                    ck._store.set_gold("000006-a0") if name == "committed" else None
                )
            ck.save(step, {"x": np.arange(step)}, None)
            all_sent(ck)
            ck._store.hook = lambda name: None
        assert Remote("cold", cold).generations() == ["000006-a0", "000004-a0"]
    assert Remote("cold", cold).generations() == ["000007-a0", "000006-a0", "000004-a0"]
    assert len(Remote("warm", warm).generations()) == 7


def test_gold_is_not_overtaken(store: CheckpointStore, tmp_path: Path) -> None:
    """Rotation would keep it for long, and it would have been in one place only."""
    tier = Slow(tmp_path / "warm")
    store.set_gold("000002-a0")
    targets = [Target(Remote("warm", tier), is_gold=lambda name: name in store.gold())]
    uploader = Uploader(store, targets)
    uploader.offer("000001-a0")
    assert tier.is_sending.wait(30)
    for name in ("000002-a0", "000003-a0", "000004-a0"):
        uploader.offer(name)
    assert uploader.held() == {"000001-a0", "000002-a0", "000004-a0"}
    tier.may_send.set()
    uploader.close(30)
    sent = [name.partition("/")[0] for name in tier.sent if name.endswith(OK)]
    assert sent == ["000001-a0", "000004-a0", "000002-a0"], "the newest comes first"
    assert uploader.metrics().overtaken_count == 1


def test_what_is_too_old_leaves_the_cold_tier(store: CheckpointStore, tmp_path: Path) -> None:
    from milepost.checkpoint.session import archive_of

    remote = Remote("cold", LocalTier(tmp_path / "cold"))
    for name in reversed(store.generations()):
        upload_generation(store, name, remote.tier, "")
    kept = frozenset({"000003-a0"})
    assert prune_remote(remote, archive_of(Retention(1, None, 3600.0)), kept) == ()
    assert prune_remote(remote, archive_of(Retention(1, None, 1e-9)), kept) == ("000002-a0",)
    assert remote.generations() == ["000004-a0", "000003-a0", "000001-a0"]


def test_a_cold_tier_that_fails_is_not_a_good_end(tmp_path: Path) -> None:
    cold = Recording(tmp_path / "cold")
    cold.fail_at = "rank_0.bin"
    warm = LocalTier(tmp_path / "warm")
    with (
        pytest.raises(StorageError, match="cut"),
        Checkpointer(tmp_path / "scratch", warm=warm, cold=cold, to="cold") as ck,
    ):
        ck.save(0, {"x": np.arange(3)}, None)
    assert Remote("warm", warm).generations() == ["000001-a0"]


class Slow(Recording):
    """Sends when it is allowed to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_sending, self.may_send = threading.Event(), threading.Event()

    def put_file(self, local: Path, name: str, *, progress: Progress | None = None) -> None:
        self.is_sending.set()
        assert self.may_send.wait(30)
        super().put_file(local, name, progress=progress)


def test_the_queue_is_measured(store: CheckpointStore, tmp_path: Path) -> None:
    now, tier, told = [100.0], Slow(tmp_path / "warm"), []
    targets = [Target(Remote("warm", tier))]
    uploader = Uploader(store, targets, tell=told.append, clock=lambda: now[0])
    sizes = {name: store.manifest(name).size_bytes for name in store.generations()}
    uploader.offer("000001-a0")
    assert tier.is_sending.wait(30)
    now[0] = 103.0
    uploader.offer("000002-a0")
    now[0] = 104.0
    uploader.offer("000004-a0")
    metrics = uploader.metrics()
    assert (metrics.queue_count, metrics.queue_age_s, metrics.overtaken_count) == (2, 4.0, 1)
    assert metrics.queue_bytes == sizes["000001-a0"] + sizes["000004-a0"]
    assert uploader.held() == {"000001-a0", "000004-a0"}
    tier.may_send.set()
    uploader.close(30)
    assert [name for name in tier.sent if name.endswith(OK)] == ["000001-a0/OK", "000004-a0/OK"]
    metrics = uploader.metrics()
    assert (metrics.queue_count, metrics.queue_age_s, metrics.sent_count) == (0, 0.0, 2)
    assert metrics.sent_bytes == metrics_bytes(store, "000001-a0", "000004-a0")
    assert told


def metrics_bytes(store: CheckpointStore, *names: str) -> int:
    return sum((store.path(name) / "rank_0.bin").stat().st_size for name in names)


def test_a_base_that_was_proved_is_not_read_again(store: CheckpointStore, tmp_path: Path) -> None:
    read: list[str] = []

    class Counting(LocalTier):
        def digest(self, name: str, algorithm: str = "blake3") -> str:
            read.append(name)
            return super().digest(name, algorithm)

    tier, proved = Counting(tmp_path / "warm"), {}
    upload_generation(store, "000001-a0", tier, "", proved=proved)
    upload_generation(store, "000002-a0", tier, "", proved=proved)
    assert read == ["000001-a0/rank_0.bin", "000002-a0/rank_0.bin"]
    tier.delete("000001-a0")
    again = upload_generation(store, "000003-a0", tier, "", proved=proved)
    assert read[2:] == ["000001-a0/rank_0.bin", "000003-a0/rank_0.bin"], "it was gone"
    assert len(again) == 6
