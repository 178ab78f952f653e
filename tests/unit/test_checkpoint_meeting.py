"""Ranks that meet through files, as threads: who is counted in, what ends a wait."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.ranks import ALONE, Ranks, comm_of
from milepost.checkpoint.ranks_files import FileComm
from milepost.checkpoint.ranks_world import World, world_of
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import upload_generation
from milepost.errors import ConfigError, DataError, StorageError
from milepost.tiers.local import LocalTier


def together(
    size: int, folder: Path, work: Callable[[FileComm], Any], timeout_s: float = 10
) -> list[Any]:
    """Run `work` on every rank; a result is what it returned or raised."""
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = work(FileComm(World(rank, size, "mpi-1"), folder, timeout_s=timeout_s))
        except BaseException as error:  # noqa: BLE001 - the tests look at it
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def exchange(comm: FileComm) -> list[Any]:
    said = [comm.allgather([comm.Get_rank(), n]) for n in range(20)]
    comm.close()
    return said


def test_every_rank_hears_the_same_in_the_same_order(tmp_path: Path) -> None:
    heard = together(4, tmp_path, exchange)
    assert heard == [[[[rank, n] for rank in range(4)] for n in range(20)]] * 4
    assert list(tmp_path.iterdir()) == []


def test_the_same_ranks_meet_again(tmp_path: Path) -> None:
    def twice(comm: FileComm) -> list[Any]:
        return exchange(comm) + exchange(comm)

    heard = together(3, tmp_path, twice)
    assert all(len(said) == 40 for said in heard), heard
    assert list(tmp_path.rglob("*")) == []


def test_what_a_dead_launch_of_the_same_name_left_does_no_harm(tmp_path: Path) -> None:
    dead = {"nonce": "old", "host": "elsewhere", "boot": "b", "pid": 1, "start": 0.0}
    folder = tmp_path / ".meet-mpi-1"
    (folder / "s").mkdir(parents=True)
    for rank in range(3):
        (folder / f"hello-{rank}.json").write_text(json.dumps(dead))
        (folder / "s" / f"ready-{rank}").touch()
        (folder / "s" / f"1-{rank}.json").write_text('"stale"')
    (folder / "s" / "go").touch()
    opened = {"session": "s", "nonces": dict.fromkeys("012", "old")}
    (folder / "open.json").write_text(json.dumps(opened))
    heard = together(3, tmp_path, exchange)
    assert heard == [[[[rank, n] for rank in range(3)] for n in range(20)]] * 3


def test_a_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    comm = FileComm(World(0, 3, "mpi-1"), tmp_path, timeout_s=0.05)
    with pytest.raises(StorageError, match=r"rank 1, 2 of 3 did not come within 0\.05 s"):
        comm.allgather(None)
    comm = FileComm(World(2, 3, "mpi-2"), tmp_path, timeout_s=0.05)
    with pytest.raises(StorageError, match=r"(?s)rank 0, 1 of 3.*ALONE"):
        comm.allgather(None)


def test_a_rank_that_left_is_not_waited_for(tmp_path: Path) -> None:
    def work(comm: FileComm) -> Any:
        comm.allgather(1)
        if comm.Get_rank() == 1:
            comm.close()
            return None
        return comm.allgather(2)

    assert "rank 1 left" in str(together(2, tmp_path, work)[0])


def test_the_world_is_read_from_mpirun_then_from_slurm() -> None:
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2", "SLURM_PROCID": "1"}
    step |= {"SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "9"}
    mpi = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3", "PMIX_NAMESPACE": "a/../b"}
    assert world_of({}) is None
    assert world_of(step) == World(1, 4, "step-7.2.0")
    assert world_of({**step, "SLURM_RESTART_COUNT": "3"}) == World(1, 4, "step-7.2.3")
    assert world_of({**step, **mpi}) == World(2, 3, "mpi-a----b")
    assert world_of({**step, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}) is None
    batch = {name: value for name, value in step.items() if name != "SLURM_STEP_ID"}
    assert world_of(batch) is None, "the batch script is no rank"
    assert world_of({**mpi, "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}) is None
    with pytest.raises(ConfigError, match="OMPI_COMM_WORLD_RANK"):
        world_of({**mpi, "OMPI_COMM_WORLD_RANK": "3"})


def test_one_rank_may_save_alone_below_mpirun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    assert comm_of(ALONE, tmp_path, 1) is None
    found = comm_of(None, tmp_path, 1)
    assert isinstance(found, FileComm)
    assert (found.Get_rank(), found.Get_size()) == (1, 3)


def test_exchanges_get_rarer_than_steps_and_all_ranks_count_alike(tmp_path: Path) -> None:
    def work(comm: FileComm) -> list[bool]:
        ranks, asked = Ranks(comm), []
        for _ in range(500):
            asked.append(not ranks.may_skip())
            if asked[-1]:
                ranks.agree_at_step(None, None)
        ranks.close()
        return asked

    first, second = together(2, tmp_path, work)
    assert first == second
    assert first[:2] == [True, True]
    assert sum(first) < 100


def test_deserted_meetings_are_removed_at_start_and_others_stay(tmp_path: Path) -> None:
    alive = FileComm(World(0, 2, "mpi-alive"), tmp_path, timeout_s=0.05)
    with pytest.raises(StorageError):
        alive.allgather(None)
    dead = json.loads((tmp_path / ".meet-mpi-alive" / "hello-0.json").read_text())
    for name, change in (("dead", {"start": 1.0}), ("foreign", {"host": "elsewhere"})):
        (tmp_path / f".meet-mpi-{name}").mkdir()
        text = json.dumps(dead | change)
        (tmp_path / f".meet-mpi-{name}" / "hello-0.json").write_text(text)
    assert CheckpointStore(tmp_path).clean() == [".meet-mpi-dead"]
    assert len(list(tmp_path.iterdir())) == 2


def state_of(rank: int) -> np.ndarray[Any, Any]:
    return np.full(3, rank)


def save_two(folder: Path, warm: LocalTier) -> None:
    def work(comm: FileComm) -> None:
        with Checkpointer(folder, comm=comm, warm=warm, delta=False) as ck:
            for step in range(2):
                ck.save(step, {"x": state_of(comm.Get_rank())}, None)
                ck.wait()

    assert together(2, folder.parent, work) == [None, None]
    store = CheckpointStore(folder)
    for name in reversed(store.generations()):
        upload_generation(store, name, warm, "")


def restore_both(folder: Path, warm: LocalTier, timeout_s: float = 10) -> list[Any]:
    def work(comm: FileComm) -> Any:
        ck = Checkpointer(folder, comm=comm, warm=warm, upload=False)
        try:
            saved = ck.restore()
        finally:
            ck.close()
        assert saved is not None
        assert np.array_equal(saved.arrays["x"], state_of(comm.Get_rank()))
        assert saved.seconds is not None
        return saved.step, saved.tier

    return together(2, folder.parent, work, timeout_s)


def test_the_others_wait_for_a_fetch_that_takes_longer_than_their_deadline(tmp_path: Path) -> None:
    """They hear every second that rank 0 lives."""

    class Far(LocalTier):
        def get_file(self, name: str, local: Path) -> None:
            threading.Event().wait(0.9 if name.endswith(".bin") else 0.4)
            super().get_file(name, local)

    save_two(tmp_path / "ckpt", LocalTier(tmp_path / "warm"))
    shutil.rmtree(tmp_path / "ckpt")
    found = restore_both(tmp_path / "ckpt", Far(tmp_path / "warm"), timeout_s=1.8)
    assert found[0] == (1, "warm")
    assert found[1][0] == 1


def test_what_one_rank_cannot_read_is_passed_over_by_all(tmp_path: Path) -> None:
    """Its own file is damaged, in scratch and in warm; only that rank reads it."""
    folder, warm = tmp_path / "ckpt", tmp_path / "warm"
    save_two(folder, LocalTier(warm))
    for place in (folder, warm):
        path = place / "000002-a0" / "rank_1.bin"
        data = bytearray(path.read_bytes())
        data[4100] ^= 1
        path.write_bytes(data)
    assert restore_both(folder, LocalTier(warm)) == [(0, "scratch"), (0, "scratch")]


def test_when_nothing_can_be_read_all_end_with_the_same_class(tmp_path: Path) -> None:
    folder, warm = tmp_path / "ckpt", tmp_path / "warm"
    save_two(folder, LocalTier(warm))
    for path in [*folder.glob("*/rank_1.bin"), *warm.glob("*/rank_1.bin")]:
        path.unlink()
    first, second = restore_both(folder, LocalTier(warm))
    assert type(first) is type(second) is DataError
    assert "rank_1.bin: is missing" in str(first)
    assert "rank 0 cannot restore" in str(second)
    assert first.exit_code == second.exit_code
