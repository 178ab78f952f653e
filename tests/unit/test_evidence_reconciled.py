"""A launch on top of another one that nobody accounted for is refused, with the command to do it."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from helpers.project import Project, ok, said, wait_for_reader
from helpers.run_folder import RunFolder
from milepost.errors import Refused
from milepost.evidence.gather import gather
from milepost.evidence.reconcile import reconcile, write
from milepost.evidence.reconciled import refuse_unreconciled, unreconciled


def killed(root: Path) -> RunFolder:
    """Two shards, one never started; the attempt at the other was killed."""
    folder = RunFolder(root).contract().table({"0001": {"a1": {}, "a2": {}}, "0002": {"b1": {}}})
    folder.done("0001", "a1", {"accuracy": 0.9})
    folder.attempt("0001", 1, ended=None, exit_code=None, stop=None)
    return folder


def look(folder: RunFolder) -> None:
    write(folder.paths, reconcile(gather(folder.paths)))


def at_work(folder: RunFolder, number: int) -> None:
    me = psutil.Process()
    here = {"host": socket.gethostname(), "pid": me.pid, "process_start": me.create_time()}
    folder.attempt("0001", number, ended=None, exit_code=None, stop=None, **here)


def test_a_killed_attempt_is_refused_until_it_is_reconciled(tmp_path: Path) -> None:
    folder = killed(tmp_path)
    with pytest.raises(Refused, match="shard 0001 has had attempt 1 since") as error:
        refuse_unreconciled(folder.paths)
    assert "milepost reconcile sweep" in str(error.value.fix)
    assert error.value.exit_code == 20
    look(folder)
    refuse_unreconciled(folder.paths)


def test_what_happened_since_counts(tmp_path: Path) -> None:
    folder = killed(tmp_path)
    look(folder)
    folder.attempt("0001", 2, exit_code=1, stop="failed")
    assert list(unreconciled(folder.paths)) == ["shard 0001 has had attempt 2 since"]


def test_one_that_was_at_work_and_is_gone(tmp_path: Path) -> None:
    folder = killed(tmp_path)
    at_work(folder, 2)
    look(folder)
    assert list(unreconciled(folder.paths)) == []
    folder.attempt("0001", 2, ended=None, exit_code=None, stop=None)
    assert list(unreconciled(folder.paths)) == [
        "shard 0001 was RUNNING when last looked at, and is not at work"
    ]


def test_one_that_cannot_be_heard_stays_a_reason(tmp_path: Path) -> None:
    folder = killed(tmp_path)
    folder.attempt("0001", 1, host="elsewhere", ended=None, slurm_job_id="77")
    look(folder)
    assert list(unreconciled(folder.paths)) == [
        "shard 0001 was UNKNOWN when last looked at, and is not at work"
    ]


def test_nothing_launched_and_shards_of_an_older_cut_are_no_reason(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).contract().table({"0003": {"a1": {}}})
    assert list(unreconciled(folder.paths)) == []
    folder.attempt("0001", 1, ended=None)
    assert list(unreconciled(folder.paths)) == []


def test_a_damaged_reconcile_csv_accounts_for_nothing(tmp_path: Path) -> None:
    folder = killed(tmp_path)
    look(folder)
    folder.paths.reconcile.write_text("run,shard\nsweep,0001\n", encoding="utf-8")
    assert len(list(unreconciled(folder.paths))) == 1


def test_many_are_counted(tmp_path: Path) -> None:
    names = [f"{n:04d}" for n in range(1, 6)]
    folder = RunFolder(tmp_path).contract().table({n: {f"k{n}": {}} for n in names})
    for name in names:
        folder.attempt(name, 1, exit_code=1, stop="failed")
    with pytest.raises(Refused, match="0003 has had attempt 1 since; and 2 more"):
        refuse_unreconciled(folder.paths)


def test_the_commands_of_a_user_after_a_kill(tmp_path: Path) -> None:
    """Real processes: an attempt is killed, its table has grown, and a launch has to wait."""
    project = Project(tmp_path)
    project.batch("sq", [1, 2, 3])
    project.prepare("sq")
    fifo = project.hold(2)
    runner = project.start("shard", "sq", "0001")
    gate = wait_for_reader(fifo)
    assert "RUNNING" in ok(project.milepost("reconcile", "sq")).stdout
    os.killpg(runner.pid, signal.SIGKILL)
    runner.wait()
    os.close(gate)
    fifo.unlink()
    ok(project.milepost("submit", "sq"))  # the same table: nothing new is launched
    before = project.snapshot("work/sq/shards.csv")
    project.numbers("sq", [1, 2, 3, 4])
    refused = project.milepost("submit", "sq")
    assert refused.returncode == 20
    assert "shard 0001 was RUNNING when last looked at" in said(refused)
    assert "milepost reconcile sq" in said(refused)
    assert project.snapshot("work/sq/shards.csv") == before
    told = ok(project.milepost("reconcile", "sq")).stdout
    assert "INTERRUPTED" in told
    ok(project.milepost("submit", "sq"))
    assert sum(map(len, project.shards("sq").values())) == 4
