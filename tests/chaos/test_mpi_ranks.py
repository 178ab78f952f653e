"""Ranks of a real mpirun that meet through the checkpoint folder: killed at each phase, late."""

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
PHASES = {
    "begun": 0,
    "copied": 1,
    "file-durable": 1,
    "told": 2,
    "data-durable": 0,
    "manifest-durable": 0,
    "ok-durable": 0,
    "before-rename": 0,
    "renamed": 0,
    "committed": 0,
}
"""Phase -> the rank that is killed there; the manifest is rank 0's."""

SOLVER = textwrap.dedent(
    """
    import os, signal, sys, time
    import numpy as np
    from milepost import Checkpointer
    from milepost.errors import MilepostError

    folder, steps, timeout_s, fault, cut = sys.argv[1:6]
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
            folder, interval_s=0, hook=hook, rotation=2, rank_timeout_s=float(timeout_s),
            redecompose=redecompose if cut == "cut" else None,
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
        sys.exit(error.exit_code)
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
    timeout_s: float = 30,
    cut: bool = False,
) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    words = [str(folder), str(steps), str(timeout_s), fault, "cut" if cut else "-"]
    return mpirun(ranks, SOLVER, *words, survive=fault != "-")


def starts(done: subprocess.CompletedProcess[str]) -> dict[int, int]:
    """Rank -> the step it started from, of ranks that ended with the right state."""
    found = re.findall(r"rank (\d+) of \d+ from (\d+) right True", done.stdout)
    return {int(rank): int(start) for rank, start in found}


def test_ranks_meet_save_and_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    done = solve(folder)
    assert starts(done) == {0: 0, 1: 0, 2: 0}, done.stdout + done.stderr
    store = CheckpointStore(folder)
    manifest = store.manifest(store.generations()[0])
    assert manifest.ranks == {n: f"rank_{n}.bin" for n in range(3)}
    assert not list(folder.glob(".meet*")), "the last to leave clears the meeting place"
    assert starts(solve(folder, steps=6)) == {0: 4, 1: 4, 2: 4}


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_rank_aborts_for_all_and_the_one_before_stands(tmp_path: Path, phase: str) -> None:
    folder = tmp_path / "c"
    done = solve(folder, fault=f"kill:{PHASES[phase]}:{phase}")
    assert not starts(done), done.stdout
    failed = set(re.findall(r"rank (\d) failed", done.stdout))
    assert failed == {"0", "1", "2"} - {str(PHASES[phase])}, done.stdout + done.stderr
    store = CheckpointStore(folder)
    for name in store.generations():
        assert not verify_generation(store, name)
    newest = store.manifest(store.generations()[0]).step
    # A rank that dies after it said that its file is durable is not needed for the commit.
    may_be = {"renamed": {2}, "committed": {2}, "told": {1, 2}}.get(phase, {1})
    assert newest in may_be
    (folder / "given-up").unlink()
    again = solve(folder)
    assert starts(again) == dict.fromkeys(range(3), newest + 1), again.stdout + again.stderr
    assert not list(folder.glob(".draft*"))


@pytest.mark.parametrize(("who", "phase"), [(1, "copied"), (2, "file-durable"), (0, "copied")])
def test_a_late_rank_aborts_the_generation(tmp_path: Path, who: int, phase: str) -> None:
    folder = tmp_path / "c"
    done = solve(folder, fault=f"late:{who}:{phase}", timeout_s=2)
    assert set(re.findall(r"rank (\d) failed", done.stdout)) == {"0", "1", "2"}, done.stdout
    store = CheckpointStore(folder)
    assert store.manifest(store.generations()[0]).step == 1
    assert starts(solve(folder)) == dict.fromkeys(range(3), 2)


def test_fewer_and_more_ranks_are_refused_with_both_numbers_or_cut_anew(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    solve(folder, 2, 2)
    for ranks in (3, 1):
        done = solve(folder, ranks, 4)
        assert done.returncode != 0
        assert f"was version 1, 2 ranks and is version 1, {ranks} ranks" in " ".join(
            done.stdout.split()
        )
        assert "redecompose" in done.stdout
    assert starts(solve(folder, 3, 4, cut=True)) == {0: 2, 1: 2, 2: 2}
    assert starts(solve(folder, 1, 5, cut=True)) == {0: 4}
