"""Kills for want of memory are read from the control groups of both kinds."""

from pathlib import Path

import pytest

from milepost.errors import DataError
from milepost.model import Action
from milepost.runner.attempt import artifact_finding, classify_output, is_final
from milepost.runner.oom import OomCounter, counter_files


def machine(root: Path, group: str, mount: str, name: str, folders: list[str]) -> Path:
    """A /proc/self that says `group` and `mount`, and counters in the folders below the mount."""
    proc = root / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(group + "\n")
    (proc / "mountinfo").write_text(mount.format(root=root) + "\n")
    for folder in folders:
        path = root / "fs" / folder
        path.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("under_oom 0\noom_kill 0\n")
    return proc


def legacy(root: Path, mount: str = "/") -> Path:
    return machine(
        root,
        "4:memory:/slurm/uid_0/job_53/step_1/task_0",
        f"35 31 0:32 {mount} {{root}}/fs rw - cgroup cgroup rw,memory",
        "memory.oom_control",
        ["slurm/uid_0", "slurm/uid_0/job_53", "slurm/uid_0/job_53/step_1/task_0"],
    )


def unified(root: Path) -> Path:
    return machine(
        root,
        "0::/system.slice/slurmstepd.scope/job_53/step_1/user/task_0",
        "30 23 0:26 / {root}/fs rw shared:4 - cgroup2 cgroup2 rw,nsdelegate",
        "memory.events",
        ["system.slice", "system.slice/slurmstepd.scope/job_53/step_1/user/task_0"],
    )


@pytest.mark.parametrize("make", [legacy, unified])
def test_groups_from_the_process_up_to_its_job(tmp_path: Path, make: object) -> None:
    files = counter_files(make(tmp_path))  # type: ignore[operator]
    assert files[0].parent.name == "task_0"
    assert all("job_53" in str(path) for path in files)  # above it are other jobs


def test_a_kill_anywhere_in_the_job_counts(tmp_path: Path) -> None:
    counter = OomCounter(counter_files(legacy(tmp_path)))
    before = counter.known
    assert counter.rose_since(before) == 0
    job = tmp_path / "fs/slurm/uid_0/job_53/memory.oom_control"
    job.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert counter.rose_since(before) == 2
    assert counter.rose_since(counter.known) == 0


def test_a_group_that_is_mounted_from_its_own_root(tmp_path: Path) -> None:
    proc = legacy(tmp_path, mount="/slurm/uid_0/job_53")
    own = tmp_path / "fs/step_1/task_0"
    own.mkdir(parents=True)
    (own / "memory.oom_control").write_text("oom_kill 1\n")
    assert counter_files(proc) == [own / "memory.oom_control"]


def test_without_counters_nothing_is_told(tmp_path: Path) -> None:
    assert counter_files(tmp_path) == []
    counter = OomCounter([])
    assert counter.known is None and counter.rose_since(None) is None


def test_the_count_decides_what_a_kill_means() -> None:
    assert classify_output(b"", -9, 1).subclass == "host_oom"
    assert classify_output(b"", -9, 1).confidence > 0.9
    killed = classify_output(b"", -9, 0)
    assert (killed.subclass, killed.action) == ("killed", Action.RETRY_SAME)
    assert classify_output(b"", 137, None).subclass == "host_oom"  # a guess is all there is
    log = (
        b"Detected 1 oom_kill event in StepId=1.batch. Some of the step tasks have been OOM Killed."
    )
    assert classify_output(log, -9, 0).subclass == "host_oom"  # the log is a witness, too


def test_an_artifact_that_a_killed_child_did_not_write() -> None:
    error = DataError("is missing", where="score.json")
    assert artifact_finding(error, 1).action is Action.RETRY_MORE_MEMORY
    assert artifact_finding(error, 0).subclass == "bad_artifact"


@pytest.mark.parametrize(
    ("action", "here", "on_slurm"),
    [
        (Action.RETRY_SAME, False, False),
        (Action.RESUME_FROM_CHECKPOINT, False, False),
        (Action.RETRY_MORE_MEMORY, True, False),
        (Action.LONGER_WALLTIME, True, False),
        (Action.FIX_NO_RETRY, True, True),
    ],
)
def test_what_a_larger_request_mends_is_final_only_here(
    action: Action, here: bool, on_slurm: bool
) -> None:
    finding = {"action": str(action)}
    assert is_final(finding, on_slurm=False) is here
    assert is_final(finding, on_slurm=True) is on_slurm
