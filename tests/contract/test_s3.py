"""Checkpoints in a real S3: sent, cut short, resumed, lost and fetched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from helpers.project import Project, ok
from helpers.s3_server import S3Server, running_server
from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.crypt import WrongKey, load_key
from milepost.checkpoint.manifest import MANIFEST, OK
from milepost.checkpoint.rekey_far import rekey_remote
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote, upload_generation
from milepost.durable import digest_file
from milepost.errors import StorageError
from milepost.tiers import open_tier
from milepost.tiers.fsspec_tier import FsspecTier
from milepost.tiers.retry import RetryTier

FIRST, LAST = "000001-a0", "000002-a0"


@pytest.fixture
def place(s3_server: S3Server) -> str:
    return f"{s3_server.new_bucket()}/runs/0001"


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """A full generation of more than two parts, and a delta of it."""
    x = np.random.default_rng(1).standard_normal(2_300_000)
    with Checkpointer(tmp_path / "scratch", compression="none") as ck:
        for step in range(2):
            x[0] = step
            ck.save(step, {"x": x}, {"step": step})
            ck.wait()
    return CheckpointStore(tmp_path / "scratch")


def uploads(server: S3Server, place: str) -> list[str]:
    """Keys of the unfinished uploads, as another client sees them."""
    found: dict[str, Any] = server.client().list_multipart_uploads(Bucket=urlsplit(place).netloc)
    return [upload["Key"] for upload in found.get("Uploads", ())]


def test_what_was_sent_is_there_for_any_client(
    s3_server: S3Server, place: str, store: CheckpointStore
) -> None:
    proofs = upload_generation(store, LAST, open_tier(place), "ckpt")
    names = ["rank_0.bin", MANIFEST, OK]
    assert [proof.path for proof in proofs] == [
        f"ckpt/{one}/{name}" for one in (FIRST, LAST) for name in names
    ]
    for proof in proofs:
        key = f"runs/0001/{proof.path}"
        found = s3_server.client().get_object(Bucket=urlsplit(place).netloc, Key=key)
        near = store.folder / proof.path.removeprefix("ckpt/")
        assert found["Body"].read() == near.read_bytes()
        assert digest_file(near) == proof.digest
    assert uploads(s3_server, place) == []


def test_an_erased_disk_is_restored_from_s3(place: str, store: CheckpointStore) -> None:
    upload_generation(store, LAST, open_tier(place), "")
    shutil.rmtree(store.folder)
    with Checkpointer(store.folder, warm=place) as ck:
        saved = ck.restore()
        assert saved is not None
        assert (saved.step, saved.tier, saved.damages, saved.lost.seconds) == (1, "warm", (), 0.0)
        assert saved.arrays["x"][0] == 1
        ck.save(2, saved.arrays, None)
    assert ck.commits[0].bytes_stored < 10_000, "a delta of what was fetched"
    assert Remote("warm", open_tier(place)).generations() == ["000003-a0", LAST, FIRST]


KILLED = textwrap.dedent(
    """
    import os, signal, sys
    from milepost.checkpoint.store import CheckpointStore
    from milepost.checkpoint.upload import upload_generation
    from milepost.tiers import open_tier

    sent = 0

    def progress(size):
        global sent
        sent += size
        if sent > 12_000_000:
            os.kill(os.getpid(), signal.SIGKILL)

    upload_generation(CheckpointStore(sys.argv[1]), sys.argv[2], open_tier(sys.argv[3]), "",
                      progress=progress)
    """
)


def test_a_killed_upload_is_swept_up_and_sent_again(
    s3_server: S3Server, place: str, store: CheckpointStore
) -> None:
    command = [sys.executable, "-c", KILLED, str(store.folder), LAST, place]
    done = subprocess.run(command, timeout=60, check=False, env={**os.environ})
    assert done.returncode == -signal.SIGKILL
    key = f"runs/0001/{FIRST}/rank_0.bin"
    assert uploads(s3_server, place) == [key], "its parts are in the bucket, unseen"
    s3_server.client().create_multipart_upload(Bucket=urlsplit(place).netloc, Key="runs/0002/x")
    assert Remote("warm", open_tier(place)).generations() == []
    with Checkpointer(store.folder, warm=place) as ck:
        saved = ck.restore()
        assert uploads(s3_server, place) == ["runs/0002/x"], "that of another run is not ours"
        assert saved is not None
        ck.save(2, saved.arrays, None)
    assert Remote("warm", open_tier(place)).generations()[0] == "000003-a0"
    assert uploads(s3_server, place) == ["runs/0002/x"]


def test_a_resumed_upload_proves_what_is_there(
    s3_server: S3Server, place: str, store: CheckpointStore
) -> None:
    """Same name and size, but another content: found by reading it back, and sent again."""
    near = store.path(FIRST) / "rank_0.bin"
    spoilt = bytearray(near.read_bytes())
    spoilt[9_000_000] ^= 1
    s3_server.client().put_object(
        Bucket=urlsplit(place).netloc, Key=f"runs/0001/{FIRST}/rank_0.bin", Body=bytes(spoilt)
    )
    tier = open_tier(place)
    counted: list[int] = []
    upload_generation(store, FIRST, tier, "", progress=counted.append)
    assert tier.digest(f"{FIRST}/rank_0.bin") == digest_file(near)
    assert sum(counted) == near.stat().st_size
    upload_generation(store, FIRST, tier, "", progress=counted.append)
    assert sum(counted) == near.stat().st_size, "what was there and right is not sent twice"


def test_a_key_is_exchanged_in_place_and_the_server_copies_the_data(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encrypt = {}
    for n, name in enumerate(("old", "new")):
        (tmp_path / name).write_bytes(bytes([n + 1] * 32))
        (tmp_path / name).chmod(0o600)
        encrypt[name] = {"key_file": str(tmp_path / name)}
    old, new = (load_key(encrypt[name]) for name in ("old", "new"))
    assert old is not None and new is not None
    x = np.random.default_rng(1).standard_normal(2_300_000)
    near = tmp_path / "near"
    with Checkpointer(near, warm=place, compression="none", encrypt=encrypt["old"]) as ck:
        for step in range(2):
            x[0] = step
            ck.save(step, {"x": x}, None)
            ck.wait()
    shutil.rmtree(near)
    near.mkdir()
    tier = FsspecTier(place)
    sent: list[int] = []
    real = tier._fs.call_s3

    def call(name: str, *args: Any, **words: Any) -> Any:
        sent.append(len(words.get("Body", b"")))
        return real(name, *args, **words)

    monkeypatch.setattr(tier._fs, "call_s3", call)
    done = rekey_remote(CheckpointStore(near), Remote("warm", tier), old, new)
    assert [item.files for item in done] == [1, 1]
    assert sum(sent) < 10_000_000 < x.nbytes, "S3 takes no part below 5 MiB but the last"
    for name, is_right in (("new", True), ("old", False)):
        ck = Checkpointer(tmp_path / f"at-{name}", warm=place, upload=False, encrypt=encrypt[name])
        if is_right:
            saved = ck.restore()
            assert saved is not None
            assert (saved.step, saved.arrays["x"][0]) == (1, 1)
        else:
            with pytest.raises(WrongKey):
                ck.restore()


def test_a_bucket_that_is_missing_is_not_made(
    s3_server: S3Server, place: str, tmp_path: Path
) -> None:
    tier = open_tier("s3://bucket-that-nobody-made/run")
    assert tier.list() == []
    assert tier.clean() == ()
    with pytest.raises(StorageError, match="cannot be written"):
        tier.put_bytes("a", b"1")
    (tmp_path / "a").write_bytes(b"1")
    with pytest.raises(StorageError, match="make that bucket"):
        tier.put_file(tmp_path / "a", "a")
    made = [bucket["Name"] for bucket in s3_server.client().list_buckets()["Buckets"]]
    assert "bucket-that-nobody-made" not in made


def test_a_server_that_is_away_is_asked_again_and_then_named(
    s3_server: S3Server, tmp_path: Path
) -> None:
    with running_server(tmp_path) as server:
        place = f"{server.new_bucket()}/run"
        waits: list[float] = []
        tier = RetryTier(FsspecTier(place), retry_limit=2, sleep=waits.append, draw=lambda: 1.0)
        tier.put_bytes("a", b"1")
        server.stop()
        with pytest.raises(StorageError, match=r"failed 3 times") as caught:
            tier.read_bytes("a")
    assert caught.value.where == f"{place}/a"
    assert (tier.retry_count, waits) == (2, [0.5, 1.0])


def test_credentials_that_are_missing_are_named_at_once(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_server(tmp_path) as server:
        place = server.new_bucket()
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(StorageError, match="credentials"):
            open_tier(place).put_bytes("a", b"1")


def test_the_rate_is_kept_within_5_percent_over_http(place: str, tmp_path: Path) -> None:
    """A busy machine may send less, but never in all of several tries, and never more."""
    rate = 6e6
    (tmp_path / "data").write_bytes(bytes(12_000_000))
    open_tier(place).put_bytes("hello", b"the connection stands")
    reached = []
    for number in range(4):
        tier = open_tier(place, max_bandwidth_mb_s=rate / 1e6)
        marks = [(time.monotonic(), 0)]

        def note(size_bytes: int, marks: list[tuple[float, int]] = marks) -> None:
            marks.append((time.monotonic(), marks[-1][1] + size_bytes))

        tier.put_file(tmp_path / "data", f"data{number}", progress=note)
        start = marks[0][0]
        assert all(sent <= rate * (at - start) * 1.05 for at, sent in marks[1:])
        reached.append(marks[-1][1] / (marks[-1][0] - start) / rate)
        if reached[-1] > 0.95:
            break
    assert max(reached) > 0.95, reached


WALK = textwrap.dedent(
    """
    import json, os, pathlib, signal, sys
    import numpy as np
    from milepost import Checkpointer

    with Checkpointer.from_env() as ck:
        saved = ck.restore()
        if saved is None:
            for step in range(3):
                ck.save(step, {"x": np.full(1000, step)}, {})
                ck.wait()
            ck._committer.settle()
            assert ck._session._uploader.wait(30)
            os.kill(os.getpid(), signal.SIGKILL)
        ck.finish()
    found = {"step": saved.step, "tier": saved.tier, "x": int(saved.arrays["x"][0])}
    pathlib.Path(sys.argv[1], "walk.json").write_text(json.dumps(found))
    """
)


def test_a_run_whose_scratch_goes_with_its_node_goes_on_from_s3(
    s3_server: S3Server, tmp_path: Path
) -> None:
    bucket = s3_server.new_bucket()
    project = Project(tmp_path)
    project.tiers = {"scratch": "disk", "warm": f"{bucket}/runs"}
    project.table("walk", [{"seed": 1}])
    project.write("walk.py", WALK)
    work = {"kind": "resumable", "members": "config/walk.csv"}
    project.run(
        "walk",
        work=work | {"command": "python walk.py {out} {seed}"},
        artifacts=[{"path": "walk.json", "check": "json"}],
        retry={"limit": 0},
    )
    project.launch("walk")
    assert project.milepost("shard", "walk", "0001").returncode not in (0, 75)
    shutil.rmtree(tmp_path / "disk")
    ok(project.milepost("shard", "walk", "0001"))
    found = project.json("results/walk/artifacts/0001/walk.json")
    assert found == {"step": 2, "tier": "warm", "x": 2}
    assert project.json("work/walk/shards/0001/attempts/2.json")["restored"]["tier"] == "warm"
    shutil.rmtree(tmp_path / "disk")
    ok(project.milepost("upload", "walk", "0001"))
    proved = project.json("results/walk/shards/0001/upload.json")
    assert proved["verified"] and proved["generation"].startswith("000003")
    for file in proved["files"]:
        bucket_name, _, key = file["url"].removeprefix("s3://").partition("/")
        head = s3_server.client().head_object(Bucket=bucket_name, Key=key)
        assert head["ContentLength"] == file["bytes"]
    metrics = (tmp_path / "work/walk/metrics/0001.prom").read_text()
    assert "milepost_upload_queue_generations" in metrics
