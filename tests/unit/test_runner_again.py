"""A retry that nobody asked for: what it may try, and what it leaves alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers.run_folder import RunFolder, at
from helpers.slurm_answers import Answer, Recorded
from milepost.clock import epoch
from milepost.config.contract import load_contract
from milepost.errors import Refused
from milepost.evidence.cancelled import cancelled_job
from milepost.evidence.unsaid import completed, is_unsaid
from milepost.launch.request import request_of
from milepost.model import Action
from milepost.paths import RunPaths
from milepost.runner.again import check_retry
from milepost.slurm.command import SEPARATOR, replaced_by
from milepost.slurm.sacct_text import FIELDS, FREE_TEXT

SHARD = "0001"
OOM = {
    "class": "runtime",
    "subclass": "host_oom",
    "action": "retry_more_memory",
    "evidence": [],
    "confidence": 0.9,
}
FIX = {**OOM, "subclass": "dependency_import", "action": "fix_no_retry"}
KILLED = {"ended": None, "exit_code": None, "stop": None, "slurm_job_id": "7", "useful_s": None}


def folder(root: Path, kind: str = "resumable") -> RunFolder:
    made = RunFolder(root, "sweep", kind)
    work: dict[str, Any] = {"kind": kind, "command": "python fit.py --C {C} --out {out}"}
    work["tasks" if kind == "batch" else "members"] = "config/tasks.csv"
    made.contract(work=work).table({SHARD: {"a": {"C": 1}}})
    return made


def sacct(state: str, *, start: float = 0.0, end: float = 60.0, **more: str) -> Answer:
    """sacct's answer about job 7, which ran from `start` to `end` (seconds after the epoch of at)."""
    values = {"JobID": "7", "JobIDRaw": "7", "State": state, "ExitCode": "0:0"}
    values |= {"Start": at(start)[:19], "End": at(end)[:19], "Submit": at(start)[:19]}
    names = (*FIELDS, *FREE_TEXT)
    row = SEPARATOR.join((values | more).get(name, "") for name in names)
    return f"{SEPARATOR.join(names)}\n{row}\n"


def check(paths: RunPaths, automatic: int, answers: Mapping[str, Any] | None = None) -> None:
    with replaced_by(
        Recorded({"sacct --version": "slurm 22.05.8", "squeue": "", **(answers or {})})
    ):
        check_retry(load_contract(paths).spec, paths, SHARD, automatic)


@pytest.fixture
def in_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "8")


def test_a_person_may_always_try(tmp_path: Path, in_job: None) -> None:
    made = folder(tmp_path)
    made.attempt(SHARD, 1, stop="cancelled", exit_code=75, slurm_job_id="7")
    check(made.paths, 0)


def test_cancelled_work_is_left_alone_and_the_next_command_is_named(
    tmp_path: Path, in_job: None
) -> None:
    made = folder(tmp_path)
    made.attempt(SHARD, 1, stop="cancelled", exit_code=75, slurm_job_id="7")
    with pytest.raises(Refused, match=r"attempt 1 \(job 7\) was cancelled") as refused:
        check(made.paths, 1)
    assert "snakemake --profile slurm" in str(refused.value.fix)
    assert refused.value.exit_code == 20


def test_not_more_often_than_the_contract_allows(tmp_path: Path, in_job: None) -> None:
    made = folder(tmp_path)
    check(made.paths, 2)
    with pytest.raises(Refused, match="retry 3, and the contract allows 2"):
        check(made.paths, 3)


def test_a_single_member_that_needs_a_fix_is_not_run_again(tmp_path: Path, in_job: None) -> None:
    made = folder(tmp_path)
    made.attempt(SHARD, 1, stop="failed", exit_code=11, finding=FIX, slurm_job_id="7")
    with pytest.raises(Refused, match="failed by runtime/dependency_import"):
        check(made.paths, 1)


def test_of_a_batch_other_tasks_may_be_open(tmp_path: Path, in_job: None) -> None:
    made = folder(tmp_path, "batch")
    made.attempt(SHARD, 1, stop="failed", exit_code=11, finding=FIX, slurm_job_id="7")
    check(made.paths, 1)


def test_memory_grows_on_slurm_and_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = folder(tmp_path)
    made.attempt(SHARD, 1, stop="failed", exit_code=11, finding=OOM)
    with pytest.raises(Refused, match="host_oom"):
        check(made.paths, 1)
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    check(made.paths, 1)


@pytest.mark.parametrize(
    ("state", "action"),
    [
        ("TIMEOUT", Action.LONGER_WALLTIME),
        ("NODE_FAIL", Action.RETRY_SAME),
        ("OUT_OF_MEMORY", Action.RETRY_MORE_MEMORY),
        ("PREEMPTED", Action.RESUME_FROM_CHECKPOINT),
    ],
)
def test_slurm_says_how_a_killed_attempt_ended(
    tmp_path: Path, in_job: None, state: str, action: Action
) -> None:
    made = folder(tmp_path)
    made.attempt(SHARD, 1, **KILLED)
    check(made.paths, 1, {"sacct": sacct(state)})
    live = made.paths.shard(SHARD).live
    said = json.loads((live / "attempts" / "1.slurm.json").read_text())
    assert said["finding"]["action"] == action
    check(made.paths, 1)  # written down: Slurm is not asked again


def test_a_killed_attempt_that_was_cancelled(tmp_path: Path, in_job: None) -> None:
    made = folder(tmp_path)
    made.attempt(SHARD, 1, **KILLED)
    with pytest.raises(Refused, match="was cancelled"):
        check(made.paths, 1, {"sacct": sacct("CANCELLED by 1000")})


def test_another_execution_of_the_same_job_is_not_meant(tmp_path: Path) -> None:
    made = folder(tmp_path)
    made.attempt(SHARD, 1, **KILLED)
    live = made.paths.shard(SHARD).live
    record = json.loads((live / "attempts" / "1.json").read_text())
    assert is_unsaid(record)
    late = sacct("TIMEOUT", start=1000.0, end=2000.0)
    with replaced_by(Recorded({"sacct --version": "slurm 22.05.8", "sacct": late})):
        assert completed(live, record) == record
    with replaced_by(Recorded({"sacct --version": "slurm 22.05.8", "sacct": (1, "", "no")})):
        assert completed(live, record) == record  # not heard: nothing follows


def test_memory_of_the_next_request_follows_and_is_bounded_by_the_node(tmp_path: Path) -> None:
    made = folder(tmp_path)
    made.attempt(SHARD, 1, **KILLED)
    spec = load_contract(made.paths).spec
    answers = Recorded({"sacct --version": "slurm 22.05.8", "sacct": sacct("OUT_OF_MEMORY")})
    with replaced_by(answers):
        grown = request_of(spec, made.paths, SHARD, None).mem_mb
        bound = request_of(spec, made.paths, SHARD, spec.resources.mem_mb + 1).mem_mb
    assert grown == round(1.5 * spec.resources.mem_mb)
    assert bound == spec.resources.mem_mb + 1


def test_a_job_cancelled_while_it_waited_is_remembered(tmp_path: Path, in_job: None) -> None:
    made = folder(tmp_path)
    row = ("7", "CANCELLED", "None", at(30)[:19], str(tmp_path), "rule_shard_wildcards_sweep_0001")
    with pytest.raises(Refused, match="job 7 was cancelled before it started"):
        check(made.paths, 1, {"squeue": SEPARATOR.join(row) + "\n"})
    with pytest.raises(Refused, match="job 7"):
        check(made.paths, 1)  # slurmctld has forgotten it
    live = made.paths.shard(SHARD).live
    assert cancelled_job(live, [at(10)]) == "7"
    assert cancelled_job(live, [at(40)]) is None  # a person started it again
    assert epoch(at(30)) > epoch(at(10))
