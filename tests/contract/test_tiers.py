"""One suite for every tier: what milepost.tiers.base promises."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.durable import digest_file
from milepost.errors import DataError
from milepost.tiers import Tier, open_tier
from milepost.tiers.fsspec_tier import FsspecTier
from milepost.tiers.limit import LimitTier, TokenBucket
from milepost.tiers.local import LocalTier
from milepost.tiers.retry import RetryTier

MAKERS: dict[str, Callable[[Path], Tier]] = {
    "local": lambda folder: LocalTier(folder / "tier"),
    "memory": lambda folder: FsspecTier(f"memory://{uuid.uuid4().hex}"),
    "fsspec-local": lambda folder: FsspecTier(f"local://{folder}/tier"),
    "retry": lambda folder: RetryTier(LocalTier(folder / "tier")),
    "limit": lambda folder: LimitTier(LocalTier(folder / "tier"), TokenBucket(1e12)),
    "opened": lambda folder: open_tier(f"memory://{uuid.uuid4().hex}", max_bandwidth_mb_s=1e6),
}


@pytest.fixture(params=[*sorted(MAKERS), "s3", "s3-opened"])
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Tier:
    if request.param.startswith("s3"):
        place = f"{request.getfixturevalue('s3_server').new_bucket()}/some/run"
        return open_tier(place) if request.param == "s3-opened" else FsspecTier(place)
    return MAKERS[request.param](tmp_path)


@pytest.fixture
def local(tmp_path: Path) -> Path:
    path = tmp_path / "source.bin"
    path.write_bytes(bytes(range(256)) * 40_000)
    return path


def test_it_is_a_tier(tier: Tier) -> None:
    assert isinstance(tier, Tier)
    assert tier.place


def test_a_file_comes_back_as_it_was(tier: Tier, local: Path, tmp_path: Path) -> None:
    tier.put_file(local, "a/b/data.bin")
    assert tier.stat("a/b/data.bin") == local.stat().st_size
    assert tier.digest("a/b/data.bin") == digest_file(local)
    sha256 = hashlib.sha256(local.read_bytes()).hexdigest()
    assert tier.digest("a/b/data.bin", "sha256") == f"sha256:{sha256}"
    tier.get_file("a/b/data.bin", tmp_path / "new" / "back.bin")
    assert (tmp_path / "new" / "back.bin").read_bytes() == local.read_bytes()


def test_get_does_not_replace_a_local_file(tier: Tier, local: Path, tmp_path: Path) -> None:
    tier.put_file(local, "data.bin")
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(FileExistsError):
        tier.get_file("data.bin", tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"


def test_progress_counts_every_byte(tier: Tier, local: Path) -> None:
    counted: list[int] = []
    tier.put_file(local, "data.bin", progress=counted.append)
    assert sum(counted) == local.stat().st_size
    assert len(counted) > 1


def test_a_transfer_that_is_cancelled_leaves_nothing(tier: Tier, local: Path) -> None:
    def cancel(size_bytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tier.put_file(local, "data.bin", progress=cancel)
    assert tier.list() == []
    assert tier.stat("data.bin") is None


def test_the_same_content_twice_is_no_error(tier: Tier, local: Path) -> None:
    tier.put_file(local, "data.bin")
    tier.put_file(local, "data.bin")
    tier.put_bytes("small", b"x")
    tier.put_bytes("small", b"x")
    assert tier.list() == ["data.bin", "small"]


def test_another_content_is_refused(tier: Tier, local: Path, tmp_path: Path) -> None:
    tier.put_file(local, "data.bin")
    same_size = tmp_path / "other.bin"
    same_size.write_bytes(bytes(local.stat().st_size))
    with pytest.raises(DataError, match="never replaced"):
        tier.put_file(same_size, "data.bin")
    tier.put_bytes("small", b"x")
    with pytest.raises(DataError, match="never replaced"):
        tier.put_bytes("small", b"y")
    assert tier.digest("data.bin") == digest_file(local)
    assert tier.read_bytes("small") == b"x"


@pytest.mark.parametrize("size", [5000, 9 << 20])
def test_the_head_of_a_file_is_replaced(tier: Tier, tmp_path: Path, size: int) -> None:
    (tmp_path / "old").write_bytes(bytes(range(250)) * (size // 250))
    whole = (tmp_path / "old").read_bytes()
    tier.put_file(tmp_path / "old", "a/data.bin")
    assert tier.read_bytes("a/data.bin", 300) == whole[:300]
    head = b"new" * 1000
    for _ in range(2):
        tier.replace_head("a/data.bin", head)
    tier.get_file("a/data.bin", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == head + whole[len(head) :]
    assert tier.list() == ["a/data.bin"]
    assert tier.clean() == (), "no upload is left open"
    with pytest.raises(FileNotFoundError):
        tier.replace_head("none", head)


def test_names_are_listed_below_a_folder_only(tier: Tier) -> None:
    for name in ("run/a/1", "run/a/2", "run/ab/1", "top"):
        tier.put_bytes(name, name.encode())
    assert tier.list() == ["run/a/1", "run/a/2", "run/ab/1", "top"]
    assert tier.list("run/a") == ["run/a/1", "run/a/2"]
    assert tier.list("nothing") == []


def test_what_is_missing(tier: Tier, tmp_path: Path) -> None:
    assert tier.stat("no/such") is None
    with pytest.raises(FileNotFoundError):
        tier.read_bytes("no/such")
    with pytest.raises(FileNotFoundError):
        tier.get_file("no/such", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    tier.delete("no/such")


def test_a_folder_has_no_size(tier: Tier) -> None:
    tier.put_bytes("run/a", b"1")
    assert tier.stat("run") is None


def test_delete_takes_a_file_or_a_folder(tier: Tier) -> None:
    for name in ("run/a/1", "run/a/2", "run/b"):
        tier.put_bytes(name, b"1")
    tier.delete("run/a")
    assert tier.list() == ["run/b"]
    tier.delete("run/b")
    assert tier.list() == []
    tier.put_bytes("run/b", b"another content now")
    assert tier.read_bytes("run/b") == b"another content now"


def test_an_empty_file(tier: Tier, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    tier.put_file(tmp_path / "empty", "empty")
    assert tier.stat("empty") == 0
    assert tier.read_bytes("empty") == b""


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "a//b", "", ".", "a\\b", "a\0b"])
def test_names_that_leave_the_tier_are_refused(tier: Tier, local: Path, name: str) -> None:
    for call in (
        lambda: tier.put_file(local, name),
        lambda: tier.read_bytes(name),
        lambda: tier.delete(name),
        lambda: tier.stat(name),
    ):
        with pytest.raises(DataError):
            call()


def test_cleaning_leaves_what_is_whole(tier: Tier, local: Path) -> None:
    tier.put_file(local, "run/data.bin")
    assert tier.clean() == ()
    assert tier.clean("run") == ()
    assert tier.list() == ["run/data.bin"]


def test_free_bytes_is_a_count_or_not_known(tier: Tier) -> None:
    free = tier.free_bytes()
    assert free is None or free > 0
