"""How a data file is written: in large pieces, while the state is copied, through memory that is
made once."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milepost.checkpoint import datafile, direct
from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.datafile import ReadMemory
from milepost.checkpoint.decode import read_data_file
from milepost.checkpoint.direct import IO_BYTES, DirectWriter
from milepost.checkpoint.encode import EncodeOptions, WrittenFile, write_data_file
from milepost.checkpoint.image import Image
from milepost.checkpoint.layout import plan_layout
from milepost.checkpoint.rates import Probing, TierRate
from milepost.checkpoint.sink import LEAST_BYTES
from milepost.errors import StorageError

MIB = 1 << 20
SMALL = 64 << 10


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all writes to data files."""
    sizes: list[int] = []
    real = os.pwrite

    def pwrite(fd: int, data: Any, offset: int) -> int:
        sizes.append(len(data))
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return sizes


def write(path: Path, x: np.ndarray[Any, Any], **options: Any) -> WrittenFile:
    layout = plan_layout({"x": x}, SMALL)
    image = Image(layout.image_bytes)
    image.fill(layout, {"x": x})
    return write_data_file(path, image, layout, {}, path.name, EncodeOptions(**options))


def read(path: Path) -> np.ndarray[Any, Any]:
    return read_data_file(path, lambda name: path.parent / name).arrays["x"]


@pytest.mark.parametrize("is_direct", [True, False])
@pytest.mark.parametrize("kind", ["scattered", "mixed", "full"])
def test_scattered_changes_are_gathered(
    tmp_path: Path,
    writes: list[int],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    is_direct: bool,
) -> None:
    """Every write but the last is 4 to 8 MiB, however the changed blocks lie."""
    if not is_direct:
        monkeypatch.setattr(direct, "_DIRECT", 0)
    x = np.random.default_rng(1).integers(0, 255, 48 * MIB, np.uint8)
    first = write(tmp_path / "one", x)
    pieces = x.reshape(-1, SMALL)
    if kind == "full":
        x += 1
    else:
        pieces[::3, 17] += 1
    if kind == "mixed":
        pieces[200:330, 0] += 1
    writes.clear()
    second = write(tmp_path / "two", x, known=first.blocks)
    stored = second.data_bytes
    assert stored == len(np.unique(second.index["number"][second.index["source"] == 0])) * SMALL
    assert sum(writes) == second.size_bytes
    sizes = sorted(writes)
    assert all(LEAST_BYTES <= size <= IO_BYTES for size in sizes[1:]), sizes
    assert len(writes) <= second.size_bytes // LEAST_BYTES + 1
    assert np.array_equal(read(tmp_path / "two"), x)


def test_a_file_is_reserved_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a delta, whose size nobody knows; what was too much is gone in the end."""
    events: list[tuple[str, int]] = []
    fallocate, pwrite = os.posix_fallocate, os.pwrite

    def reserve(fd: int, start: int, size: int) -> None:
        events.append(("reserved", start + size))
        fallocate(fd, start, size)

    def put(fd: int, data: Any, offset: int) -> int:
        events.append(("written", offset + len(data)))
        return pwrite(fd, data, offset)

    monkeypatch.setattr(os, "posix_fallocate", reserve)
    monkeypatch.setattr(os, "pwrite", put)
    x = np.random.default_rng(1).integers(0, 255, 16 * MIB, np.uint8)
    first = write(tmp_path / "one", x)
    x[::SMALL] += 1
    for known in (None, first.blocks):
        events.clear()
        path = tmp_path / str(known is None)
        written = write(path, x, known=known)
        most = 0
        for what, end in events:
            most = max(most, end) if what == "reserved" else most
            assert end <= most
        assert path.stat().st_size == written.size_bytes


def test_a_delta_that_fits_is_written_though_its_reserve_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.posix_fallocate

    def reserve(fd: int, start: int, size: int) -> None:
        if start + size > 9 * MIB:
            raise OSError(errno.ENOSPC, "full")
        real(fd, start, size)

    x = np.random.default_rng(1).integers(0, 255, 32 * MIB, np.uint8)
    first = write(tmp_path / "one", x)
    x[: 5 * MIB] += 1
    monkeypatch.setattr(os, "posix_fallocate", reserve)
    write(tmp_path / "two", x, known=first.blocks)
    assert np.array_equal(read(tmp_path / "two"), x)
    x += 1
    with pytest.raises(StorageError, match="is full"):
        write(tmp_path / "three", x, known=first.blocks)


def test_the_disk_is_busy_before_the_copy_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is held at its last eighth until the first write is over."""
    written, real = threading.Event(), DirectWriter.write

    def put(self: DirectWriter, view: memoryview, offset: int) -> None:
        real(self, view, offset)
        written.set()

    fill = Image.fill

    def fill_slowly(self: Image, layout: Any, arrays: Any, tell: Callable[[int], None]) -> None:
        ends: list[int] = []

        def hear(end: int) -> None:
            ends.append(end)
            tell(end)
            if len(ends) == 2:
                assert written.wait(60), "nothing was written beside the copy"

        fill(self, layout, arrays, hear)

    monkeypatch.setattr(DirectWriter, "write", put)
    monkeypatch.setattr(Image, "fill", fill_slowly)
    monkeypatch.setattr("milepost.checkpoint.image._LEAST_TOLD_BYTES", 32 * MIB)
    x = np.random.default_rng(1).standard_normal(6 * MIB)
    with Checkpointer(tmp_path, compression="none") as ck:
        for step in range(2):
            written.clear()
            x = x + 1
            ck.save(step, {"x": x})
            ck.wait()
        saved = ck.restore()
    assert saved is not None
    assert np.array_equal(saved.arrays["x"], x)


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("is_secret", [False, True])
@pytest.mark.parametrize("limit_mb", [None, 8])
def test_memory_is_made_once_and_bounded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compression: str,
    is_secret: bool,
    limit_mb: float | None,
) -> None:
    monkeypatch.setenv("WRITE_KEY", "ab" * 32)
    made: list[Image] = []
    real = Image.__init__

    def init(self: Image, capacity_bytes: int, **options: bool) -> None:
        real(self, capacity_bytes, **options)
        made.append(self)

    monkeypatch.setattr(Image, "__init__", init)
    monkeypatch.setattr(datafile, "read_memory", ReadMemory())
    x = np.cumsum(np.random.default_rng(1).standard_normal(2 * MIB))
    encrypt = {"key_env": "WRITE_KEY"} if is_secret else None
    with Checkpointer(
        tmp_path, compression=compression, encrypt=encrypt, staging_limit_mb=limit_mb
    ) as ck:
        count = []
        for step in range(7):
            ck.save(step, {"x": x}, None)
            ck.wait()
            x[:: 1 << 16] += 1e-9
            count.append(len(made))
    assert count[4:] == count[4:5] * 3, "after some saves and a verification nothing is made"
    stage = sum(image.capacity_bytes for image in made[: 2 if limit_mb else 1])
    assert stage <= (x.nbytes + SMALL if limit_mb is None else limit_mb * 1e6)
    beside = sum(image.capacity_bytes for image in made) - stage
    reading = ReadMemory.kept_count * ReadMemory.kept_bytes
    assert beside <= 3 * IO_BYTES + reading, "the writer's buffers, and those of verification"


def in_a_child(check: Callable[[], bool]) -> bool:
    """What `check` says in a forked child."""
    child = os.fork()
    if child == 0:
        os._exit(0 if check() else 1)
    return os.waitpid(child, 0)[1] == 0


def test_staging_memory_is_not_copied_for_a_child() -> None:
    image = Image(3 * MIB)
    image.bytes[:] = 7
    assert in_a_child(lambda: not image.bytes.any())
    assert image.bytes.all()


def test_restored_memory_is_not_shared_with_a_child(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as ck:
        ck.save(0, {"x": np.ones(MIB)})
        ck.wait()
        saved = ck.restore()
    assert saved is not None
    x = saved.arrays["x"]

    def change() -> bool:
        was = bool((x == 1).all())
        x[:] = 2
        return was

    assert in_a_child(change)
    assert (x == 1).all()


def test_a_short_write_says_nothing_about_a_disk() -> None:
    rate = TierRate()
    rate.add(64 * MIB, 0.19)
    assert rate.bytes_per_s is None, "64 MiB that were held up"
    rate.add(4 * MIB, 30.0)
    rate.add(64 * MIB, None)
    assert rate.bytes_per_s is None
    for _ in range(3):
        rate.add(64 * MIB, 0.025)
    assert rate.bytes_per_s == pytest.approx(64 * MIB / 0.025)
    slow = TierRate()
    slow.add(64 * MIB, 2.0)
    assert slow.bytes_per_s == pytest.approx(32 * MIB)


def test_auto_that_found_nothing_looks_again_later() -> None:
    probing = Probing()

    def save(code: int, has_base: bool = True, rate: float | None = 1e9) -> str:
        asked = probing.compression("auto", rate, has_base)
        probing.note(asked, code, rate)
        return asked

    assert [save(0, has_base=False), save(0)] == ["auto", "auto"], "a base is something new"
    assert [save(0) for _ in range(8)] == ["none"] * 7 + ["auto"]
    assert save(0, rate=None) == "auto", "without a rate the encoder takes nothing anyway"
    assert [save(0) for _ in range(8)] == ["none"] * 7 + ["auto"]
    for _ in range(7):
        save(0)
    assert [save(1) for _ in range(3)] == ["auto"] * 3, "what pays is asked for each time"
    assert probing.compression("zstd", 1e9, True) == "zstd"


def test_random_numbers_on_a_fast_disk_stay_as_they_are(tmp_path: Path) -> None:
    """A small state, too: nothing that was measured so far says that the disk is slow."""
    rng = np.random.default_rng(1)
    with Checkpointer(tmp_path, rotation=1) as ck:
        for step in range(4):
            x = rng.random(MIB)
            ck.save(step, {"x": x})
            ck.wait()
    assert min(commit.bytes_stored for commit in ck.commits) > x.nbytes
