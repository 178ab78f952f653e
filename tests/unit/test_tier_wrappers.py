"""Opening tiers, and the wrappers."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import numpy as np
import pytest

from milepost.errors import ConfigError, DataError, StorageError
from milepost.tiers import open_tier
from milepost.tiers.fsspec_tier import FsspecTier
from milepost.tiers.limit import LimitTier, TokenBucket
from milepost.tiers.local import LocalTier
from milepost.tiers.retry import RetryTier


class Flaky(LocalTier):
    """Fails a number of times before each success."""

    def __init__(self, folder: Path, failures: int, error: Exception) -> None:
        super().__init__(folder)
        self.left, self.error = failures, error

    def put_bytes(self, name: str, data: bytes) -> None:
        if self.left:
            self.left -= 1
            raise self.error
        super().put_bytes(name, data)

    def get_file(self, name: str, local: Path) -> None:
        if self.left:
            self.left -= 1
            local.write_bytes(b"half")
            raise self.error
        super().get_file(name, local)


def test_open_expands_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", str(tmp_path))
    assert open_tier("$PLACE/x").place == f"{tmp_path}/x"
    assert open_tier("file://${PLACE}/x").place == f"{tmp_path}/x"
    monkeypatch.delenv("PLACE")
    with pytest.raises(ConfigError, match=r"\$PLACE/x"):
        open_tier("$PLACE/x")


def test_open_of_an_unknown_protocol_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match="install"):
        open_tier("nosuch://bucket/x")


def test_place_holds_no_secret() -> None:
    assert FsspecTier("memory://user:secret@host/x?token=y").place == "memory://host/x"


def test_retries_are_counted_spaced_and_bounded(tmp_path: Path) -> None:
    waits: list[float] = []
    flaky = Flaky(tmp_path, 4, OSError(errno.EIO, "sick"))
    tier = RetryTier(flaky, retry_limit=5, base_s=1, cap_s=3, sleep=waits.append, draw=lambda: 0.5)
    tier.put_bytes("a", b"1")
    assert tier.read_bytes("a") == b"1"
    assert tier.retry_count == 4
    assert waits == [0.75, 1.5, 2.25, 2.25]


def test_after_the_last_retry_it_is_a_storage_error(tmp_path: Path) -> None:
    flaky = Flaky(tmp_path, 99, TimeoutError("slow"))
    tier = RetryTier(flaky, retry_limit=2, sleep=lambda wait_s: None)
    with pytest.raises(StorageError, match=r"failed 3 times.*slow") as caught:
        tier.put_bytes("a", b"1")
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert tier.retry_count == 2


@pytest.mark.parametrize("error", [DataError("damaged"), StorageError("full"), FileNotFoundError()])
def test_what_will_not_pass_is_not_tried_again(tmp_path: Path, error: Exception) -> None:
    tier = RetryTier(Flaky(tmp_path, 1, error), sleep=lambda wait_s: None)
    with pytest.raises(type(error)):
        tier.put_bytes("a", b"1")
    assert tier.retry_count == 0


def test_a_half_received_file_does_not_stop_the_retry(tmp_path: Path) -> None:
    flaky = Flaky(tmp_path / "tier", 1, OSError(errno.EIO, "sick"))
    LocalTier(tmp_path / "tier").put_bytes("a", b"whole")
    tier = RetryTier(flaky, sleep=lambda wait_s: None)
    tier.get_file("a", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"whole"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_bucket_keeps_the_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(100.0, clock=clock, sleep=clock.sleep)
    for _ in range(50):
        bucket.take(100)
    assert clock.now == pytest.approx(50.0)
    clock.now += 1000
    bucket.take(100)
    assert clock.now == pytest.approx(1050.75), "idle time is worth a quarter of a second, no more"


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.2, 2.0])
def test_the_rate_is_kept_within_5_percent(delay_s: float) -> None:
    """Whatever the far end takes for a chunk and however late a sleeper wakes up."""
    clock, rate = Clock(), 30e6
    late_s = iter(np.random.default_rng(3).uniform(0, 0.05, 2000))

    def sleep(seconds: float) -> None:
        clock.sleep(seconds + next(late_s))

    bucket = TokenBucket(rate, clock=clock, sleep=sleep)
    marks, sent = [(0.0, 0)], 0
    for size in np.random.default_rng(4).integers(1, 4 << 20, 1000):
        bucket.take(int(size))
        clock.now += delay_s * size / (4 << 20)
        sent += int(size)
        marks.append((clock.now, sent))
    possible = min(rate, (4 << 20) / delay_s if delay_s else rate)
    assert sent / clock.now <= rate * 1.0001
    assert sent / clock.now >= possible * 0.95
    fastest = max(
        (end[1] - begin[1]) / (end[0] - begin[0])
        for begin in marks[::10]
        for end in marks[::10]
        if end[0] - begin[0] >= 5
    )
    assert fastest <= rate * 1.05


def test_the_limit_counts_files_and_bytes(tmp_path: Path) -> None:
    clock = Clock()
    bucket = TokenBucket(1e6, clock=clock, sleep=clock.sleep)
    tier = LimitTier(LocalTier(tmp_path / "tier"), bucket)
    (tmp_path / "a").write_bytes(bytes(5_000_000))
    seen: list[int] = []
    tier.put_file(tmp_path / "a", "a", progress=seen.append)
    tier.put_bytes("b", bytes(1_000_000))
    assert clock.now == pytest.approx(6.0)
    assert sum(seen) == 5_000_000


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        TokenBucket(0)


def test_two_writers_of_one_name_cannot_both_win(tmp_path: Path) -> None:
    tier = LocalTier(tmp_path)
    start = threading.Barrier(2)
    errors: list[Exception] = []

    def write(data: bytes) -> None:
        start.wait()
        try:
            tier.put_bytes("a", data)
        except DataError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(text,)) for text in (b"1" * 9, b"2" * 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 1
    assert tier.read_bytes("a") in (b"1" * 9, b"2" * 9)
    assert tier.list() == ["a"]


def test_a_link_out_of_the_tier_is_not_followed_by_delete(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").touch()
    (tmp_path / "tier").mkdir()
    (tmp_path / "tier" / "link").symlink_to(outside)
    LocalTier(tmp_path / "tier").delete("link")
    assert (outside / "keep").exists()
