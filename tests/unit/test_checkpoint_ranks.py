"""Ranks that checkpoint together, as threads with a fake communicator."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import upload_generation
from milepost.checkpoint.verify import verify_generation
from milepost.clock import epoch
from milepost.errors import DataError, Refused, StorageError
from milepost.tiers.local import LocalTier


class FakeComm:
    """The communicator of one rank among threads."""

    def __init__(self, rank: int, shared: list[Any], barrier: threading.Barrier) -> None:
        self._rank, self._shared, self._barrier = rank, shared, barrier

    def Get_rank(self) -> int:
        return self._rank

    def Get_size(self) -> int:
        return len(self._shared)

    def allgather(self, sendobj: Any) -> list[Any]:
        self._shared[self._rank] = sendobj
        self._barrier.wait(30)
        values = list(self._shared)
        self._barrier.wait(30)
        return values


def together(work: Callable[[FakeComm], Any], size: int = 2) -> list[Any]:
    """Run `work` on every rank; a result is what it returned or raised."""
    shared: list[Any] = [None] * size
    barrier, results = threading.Barrier(size), [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = work(FakeComm(rank, shared, barrier))
        except BaseException as error:  # noqa: BLE001 - the tests look at it
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def solve(folder: Path, comm: FakeComm, steps: int) -> int:
    with Checkpointer(folder, comm=comm, interval_s=0) as ck:
        saved = ck.restore()
        x = np.full(100_000, float(comm.Get_rank()))
        start = 0
        if saved is not None:
            x, start = saved.arrays["x"], saved.step + 1
        for step in range(start, steps):
            x += 1
            ck.save(step, {"x": x}, {"rank": comm.Get_rank()})
        ck.wait()
        assert np.all(x == comm.Get_rank() + steps)
        return start


def test_each_rank_writes_and_reads_its_own_file(tmp_path: Path) -> None:
    assert together(lambda comm: solve(tmp_path, comm, 3)) == [0, 0]
    store = CheckpointStore(tmp_path)
    manifest = store.manifest(store.generations()[0])
    assert manifest.ranks == {0: "rank_0.bin", 1: "rank_1.bin"}
    assert [proof.path for proof in manifest.files] == ["rank_0.bin", "rank_1.bin"]
    assert all(not verify_generation(store, name) for name in store.generations())
    assert not list(tmp_path.glob("**/.ack*"))
    assert together(lambda comm: solve(tmp_path, comm, 5)) == [3, 3]


def test_another_number_of_ranks_is_refused(tmp_path: Path) -> None:
    together(lambda comm: solve(tmp_path, comm, 1))
    with pytest.raises(Refused, match=r"2 ranks and is version 1, 1 ranks"):
        Checkpointer(tmp_path).restore()
    results = together(lambda comm: Checkpointer(tmp_path, comm=comm).restore(), size=3)
    assert isinstance(results[0], Refused)
    assert all("decomposition" in str(error) for error in results)


def test_a_damaged_file_of_one_rank_sends_all_to_the_older_one(tmp_path: Path) -> None:
    together(lambda comm: solve(tmp_path, comm, 3))
    path = tmp_path / "000003-a0" / "rank_1.bin"
    data = bytearray(path.read_bytes())
    data[4096] ^= 1
    path.write_bytes(data)
    assert together(lambda comm: solve(tmp_path, comm, 4)) == [2, 2]


def test_one_rank_is_told_to_stop_and_all_save(tmp_path: Path) -> None:
    def work(comm: FakeComm) -> tuple[bool, bool]:
        ck = Checkpointer(tmp_path, comm=comm, interval_s=3600)
        assert not ck.step(0, lambda: ({}, None))
        if comm.Get_rank() == 1:
            ck._flag.reason = "signal USR1"
        saved = ck.step(1, lambda: ({"x": np.arange(3)}, None))
        ck.close()
        return saved, ck.stopping

    assert together(work) == [(True, True), (True, True)]
    assert len(CheckpointStore(tmp_path).generations()) == 1


def test_what_one_rank_cannot_save_stops_all(tmp_path: Path) -> None:
    def work(comm: FakeComm) -> None:
        ck = Checkpointer(tmp_path, comm=comm)
        try:
            ck.save(0, {}, {1, 2} if comm.Get_rank() == 1 else None)
        finally:
            ck.close()

    results = together(work)
    assert isinstance(results[1], DataError)
    assert "another rank could not save: meta is a set" in str(results[0])
    assert CheckpointStore(tmp_path).names() == []
    assert not list(tmp_path.glob(".draft*"))


def test_ranks_that_do_not_share_their_folder_are_told_so(tmp_path: Path) -> None:
    """Each on the disk of its own node."""

    def work(comm: FakeComm) -> None:
        with Checkpointer(tmp_path / f"node{comm.Get_rank()}", comm=comm) as ck:
            ck.save(0, {"x": np.arange(3)}, None)

    results = together(work)
    for error in results:
        assert isinstance(error, StorageError)
        assert "rank 1 does not see what rank 0 writes" in str(error)
    assert "all of them see" in str(results[1].fix)
    assert not list((tmp_path / "node0").glob(".draft*"))


def test_drill_the_local_tier_of_one_rank_is_erased(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its node is replaced by an empty one; the warm tier has all but the last checkpoint."""
    scratch, warm = tmp_path / "scratch", LocalTier(tmp_path / "warm")
    together(lambda comm: solve(scratch, comm, 3))
    store = CheckpointStore(scratch)
    upload_generation(store, "000002-a0", warm, "")
    newest, taken = store.manifest("000003-a0"), store.manifest("000002-a0")
    for path in scratch.glob("*/rank_1.bin"):
        path.unlink()
    capsys.readouterr()

    def work(comm: FakeComm) -> tuple[int, str, float | None, bool]:
        with Checkpointer(scratch, comm=comm, warm=warm, upload=False) as ck:
            saved = ck.restore()
            assert saved is not None
            is_right = bool(np.all(saved.arrays["x"] == comm.Get_rank() + 2))
            return saved.step, saved.tier, saved.lost.seconds, is_right

    first, second = together(work)
    lost_s = epoch(newest.created) - epoch(taken.created)
    assert first == (1, "warm", lost_s, True)
    assert second[0] == 1
    assert second[3]
    said = capsys.readouterr().err
    assert "rank_1.bin: is missing" in said
    assert f"lost 1 steps, {lost_s:.1f} s of work" in said
    assert not verify_generation(store, "000002-a0"), "what was fetched is whole here too"
