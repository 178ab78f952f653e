"""Ranks of a real mpirun, killed at each phase or late: with mpi4py, and meeting in the folder."""

from __future__ import annotations

import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from helpers.mpi import mpirun
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.verify import verify_generation

pytestmark = pytest.mark.chaos
WAYS = ("files", "mpi4py")
PHASES = {
    "staged": 1,
    "begun": 0,
    "copied": 1,
    "file-durable": 1,
    "told": 2,
    "data-durable": 0,
    "manifest-durable": 0,
    "before-rename": 0,
    "renamed": 0,
}
"""Phase -> the rank that is killed there; the manifest is rank 0's."""
IN_FILES = ("begun", "copied", "told")
"""Behind the copy both ways meet in the folder: the manifest's phases need no second look."""
KILLS = [("mpi4py", phase) for phase in PHASES] + [("files", phase) for phase in IN_FILES]

SOLVER = textwrap.dedent(
    """
    import os, signal, sys, time
    import numpy as np
    from milepost import Checkpointer
    from milepost.errors import MilepostError

    folder, steps, timeout_s, fault, cut, way, warm = sys.argv[1:8]
    comm = None
    if way == "mpi4py":
        from mpi4py import MPI
        comm = MPI.COMM_WORLD
    what, who, where = (fault.split(":") + ["", ""])[:3]
    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    CELLS, seen = 30_000, 0

    def hook(step):
        global seen
        seen += step == where
        if step == where and str(rank) == who and seen == 3:
            if what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            end = time.monotonic() + 5 * float(timeout_s)
            while time.monotonic() < end and os.listdir(folder) and not os.path.exists(folder + "/given-up"):
                time.sleep(0.02)

    def mine(whole):
        return np.array_split(whole, size)[rank].copy()

    def redecompose(parts, rank, size):
        assert size == int(os.environ["OMPI_COMM_WORLD_SIZE"])
        whole = np.concatenate([part.arrays["x"] for part in parts])
        return {"x": mine(whole)}, parts[0].meta

    x, start = mine(np.arange(CELLS, dtype=float)), 0
    try:
        with Checkpointer(
            folder, comm=comm, interval_s=0, hook=hook, rotation=2, rank_timeout_s=float(timeout_s),
            warm=warm or None, redecompose=redecompose if cut == "cut" else None,
        ) as ck:
            saved = ck.restore()
            if saved is not None:
                x, start = saved.arrays["x"], saved.step + 1
            for step in range(start, int(steps)):
                x += 1
                ck.save(step, {"x": x}, {"by": size})
                ck.wait()
    except MilepostError as error:
        print(f"rank {rank} failed: {error}", flush=True)
        if not os.path.exists(folder + "/given-up"):
            open(folder + "/given-up", "w").close()
        os._exit(error.exit_code)  # MPI would wait for the one that was killed
    whole = np.array_equal(x, mine(np.arange(CELLS, dtype=float)) + int(steps))
    print(f"rank {rank} of {size} from {start} right {whole}", flush=True)
    """
)


def solve(
    folder: Path,
    ranks: int = 3,
    steps: int = 4,
    fault: str = "-",
    *,
    way: str = "files",
    timeout_s: float = 30,
    cut: bool = False,
    survive: bool = True,
    warm: str = "",
) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    words = [str(folder), str(steps), str(timeout_s), fault, "cut" if cut else "-", way, warm]
    return mpirun(ranks, SOLVER, *words, survive=survive and fault != "-")


def starts(done: subprocess.CompletedProcess[str]) -> dict[int, int]:
    """Rank -> the step it started from, of ranks that ended with the right state."""
    found = re.findall(r"rank (\d+) of \d+ from (\d+) right True", done.stdout)
    return {int(rank): int(start) for rank, start in found}


@pytest.mark.parametrize("way", WAYS)
def test_ranks_meet_save_and_go_on(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "c"
    done = solve(folder, way=way)
    assert starts(done) == {0: 0, 1: 0, 2: 0}, done.stdout + done.stderr
    store = CheckpointStore(folder)
    manifest = store.manifest(store.generations()[0])
    assert manifest.ranks == {n: f"rank_{n}.bin" for n in range(3)}
    assert not list(folder.glob(".meet*")), "the last to leave clears the meeting place"
    assert starts(solve(folder, steps=6, way=way)) == {0: 4, 1: 4, 2: 4}


def newest_step(folder: Path) -> int:
    """The step of the newest generation; all that are there must be intact."""
    store = CheckpointStore(folder)
    for name in store.generations():
        assert not verify_generation(store, name)
    return store.manifest(store.generations()[0]).step


@pytest.mark.parametrize(("way", "phase"), KILLS)
def test_a_killed_rank_aborts_for_all_and_the_one_before_stands(
    tmp_path: Path, way: str, phase: str
) -> None:
    folder = tmp_path / "c"
    done = solve(folder, fault=f"kill:{PHASES[phase]}:{phase}", way=way)
    assert not starts(done), done.stdout
    failed = set(re.findall(r"rank (\d) failed", done.stdout))
    assert failed == {"0", "1", "2"} - {str(PHASES[phase])}, done.stdout + done.stderr
    newest = newest_step(folder)
    # A rank that dies after it said that its file is durable is not needed for the commit.
    may_be = {"renamed": {2}, "told": {1, 2}}.get(phase, {1})
    assert newest in may_be
    (folder / "given-up").unlink()
    again = solve(folder, way=way)
    assert starts(again) == dict.fromkeys(range(3), newest + 1), again.stdout + again.stderr
    assert not list(folder.glob(".draft*"))


@pytest.mark.parametrize("phase", ["copied", "before-rename"])
def test_an_mpirun_that_ends_them_all_leaves_the_one_before(tmp_path: Path, phase: str) -> None:
    """What mpirun does by default when a rank dies."""
    folder = tmp_path / "c"
    fault = f"kill:{PHASES[phase]}:{phase}"
    done = solve(folder, ranks=4, fault=fault, way="mpi4py", survive=False)
    assert done.returncode != 0
    assert not starts(done)
    assert newest_step(folder) == 1
    assert starts(solve(folder, ranks=4, way="mpi4py")) == dict.fromkeys(range(4), 2)
    assert not list(folder.glob(".draft*"))


LATE = [("files", 1, "copied"), ("files", 0, "copied")]
LATE += [("mpi4py", 1, "staged"), ("mpi4py", 2, "file-durable"), ("mpi4py", 0, "copied")]


@pytest.mark.parametrize(("way", "who", "phase"), LATE)
def test_a_late_rank_aborts_the_generation(tmp_path: Path, way: str, who: int, phase: str) -> None:
    folder = tmp_path / "c"
    done = solve(folder, fault=f"late:{who}:{phase}", way=way, timeout_s=2)
    assert set(re.findall(r"rank (\d) failed", done.stdout)) == {"0", "1", "2"}, (
        done.stdout + done.stderr
    )
    assert newest_step(folder) == 1
    assert starts(solve(folder, way=way)) == dict.fromkeys(range(3), 2)


@pytest.mark.parametrize("way", WAYS)
def test_fewer_and_more_ranks_are_refused_with_both_numbers_or_cut_anew(
    tmp_path: Path, way: str
) -> None:
    folder = tmp_path / "c"
    solve(folder, 2, 2, way=way)
    for ranks in (4, 1):
        done = solve(folder, ranks, 4, way=way)
        assert done.returncode != 0
        assert f"was version 1, 2 ranks and is version 1, {ranks} ranks" in " ".join(
            done.stdout.split()
        )
        assert "redecompose" in done.stdout
    assert starts(solve(folder, 4, 4, way=way, cut=True)) == dict.fromkeys(range(4), 2)
    assert starts(solve(folder, 1, 5, way=way, cut=True)) == {0: 4}


def test_drill_what_one_rank_had_on_its_node_is_erased(tmp_path: Path) -> None:
    """Its node is replaced by an empty one; all ranks go on from the warm tier."""
    folder, warm = tmp_path / "c", str(tmp_path / "warm")
    assert starts(solve(folder, way="mpi4py", warm=warm)) == dict.fromkeys(range(3), 0)
    erased = list(folder.glob("*/rank_1.bin"))
    assert erased
    for path in erased:
        path.unlink()
    done = solve(folder, steps=6, way="mpi4py", warm=warm)
    assert starts(done) == dict.fromkeys(range(3), 4), done.stdout + done.stderr
    assert "rank_1.bin: is missing" in done.stderr
    assert "lost 0 steps, 0.0 s of work" in done.stderr
    assert newest_step(folder) == 5
