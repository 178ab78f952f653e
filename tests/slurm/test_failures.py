"""Failures: what a retry can mend is retried within bounds, what it cannot is left alone."""

import json
import shutil

import pytest

from helpers.slurm_project import RUN, SlurmProject, Stage, scene

pytestmark = pytest.mark.slurm
ONCE = ("--retries", "1")
"""One retry is enough to see that it is refused."""
GOES_ON = {
    "work": {
        "kind": "batch",
        "tasks": f"config/{RUN}.csv",
        "command": "sh goes-on.sh {out} {n}",
        "result": {"file": "score.json"},
    }
}


def assert_tasks_ran(project: SlurmProject, expected: dict[int, int]) -> None:
    """How often each task ran, in all attempts."""
    counts: dict[int, int] = {}
    for _, number in project.notes():
        counts[number] = counts.get(number, 0) + 1
    assert counts == expected


@scene
def test_cancelled_by_its_user_stays_cancelled(stage: Stage) -> None:
    project = stage.project("resumable")
    project.start_head(*ONCE)
    project.wait_at_work(1)
    stage.cluster.run("scancel", project.job())
    assert project.wait_head() != 0
    (attempt,) = project.attempts()
    assert attempt["stop"] == "cancelled"
    assert set(project.steps_of()) == {1}
    assert "is not tried again unasked: attempt 1" in project.told()
    verdict = project.verdict()
    assert (verdict["verdict"], verdict["scheduler"]) == ("INTERRUPTED", "cancelled")
    assert verdict["command"].startswith("snakemake --profile slurm")
    project.start_head()  # a person asks: it goes on
    project.wait_at_work(2)
    project.finish(interruptions=1)


@scene
def test_cancelled_while_it_waited_is_not_started(stage: Stage) -> None:
    project = stage.project("resumable")
    project.change_sbatch("--hold")
    project.start_head(*ONCE)
    job = project.job()
    stage.cluster.run("scancel", job)
    stage.cluster.wait_state(job, "CANCELLED")
    project.wait_verdict("INTERRUPTED", scheduler="cancelled")
    assert project.wait_head() != 0
    assert project.notes() == [] and project.attempts() == []
    assert f"job {job} was cancelled before it started" in project.told()
    assert project.verdict()["scheduler"] == "cancelled"  # now from the note beside the shard
    project.start_head()
    project.wait_at_work(1)
    project.finish(interruptions=0)


@scene
def test_out_of_memory_below_a_script_that_exits_0(stage: Stage) -> None:
    script = 'python -I -S task.py "$@"\nexit 0\n'
    project = stage.fresh("tasks", files={"goes-on.sh": script}, **GOES_ON)
    project.flag("hungry/2")
    project.start_head()
    assert project.wait_head() == 0, project.said()
    first, last = project.attempts()
    assert first["finding"]["subclass"] == "host_oom"
    assert first["finding"]["action"] == "retry_more_memory"
    assert last["stop"] == "done"
    memory = [stage.cluster.records(job, "ReqMem")[0][0] for job in project.jobs_of_shards()]
    assert memory == ["600M", "900M"]
    assert_tasks_ran(project, {1: 1, 2: 2, 3: 1, 4: 1})
    assert project.verdict()["verdict"] == "DONE" and project.is_closed()


@scene
def test_exit_1_whose_class_says_fix_is_not_tried_again(stage: Stage) -> None:
    project = stage.project("resumable")
    project.flag("exit-1")
    project.start_head(*ONCE)
    assert project.wait_head() != 0
    (attempt,) = project.attempts()
    assert attempt["finding"]["action"] == "fix_no_retry"
    assert "is not tried again unasked: attempt 1 failed by" in project.told()
    verdict = project.verdict()
    assert verdict["verdict"] == "FAILED"
    assert "exit 1" in verdict["next_action"]
    (project.root / "exit-1").unlink()  # mended
    project.start_head()
    project.wait_at_work(2)
    project.finish(interruptions=1)


@scene
def test_of_a_batch_only_what_failed_is_left(stage: Stage) -> None:
    project = stage.project("tasks")
    project.flag("broken/3")
    project.start_head(*ONCE)
    assert project.wait_head() != 0
    assert_tasks_ran(project, {1: 1, 2: 1, 3: 1, 4: 1})
    verdict = project.verdict()
    assert (verdict["verdict"], verdict["done"], verdict["failed"]) == ("FAILED", "3", "1")
    assert "dependency_import" in verdict["next_action"]


@scene
def test_killed_by_a_signal_is_tried_again(stage: Stage) -> None:
    project = stage.project("resumable")
    project.start_head()
    project.wait_at_work(1)
    project.flag("kill-9")
    project.wait_at_work(2)
    project.finish(interruptions=1)
    first, last = project.attempts()
    assert (first["finding"]["subclass"], first["finding"]["action"]) == ("killed", "retry_same")
    assert last["stop"] == "done" and len(project.jobs_of_shards()) == 2


@scene
def test_folder_of_the_log_vanished(stage: Stage) -> None:
    """Before 23.02 the job ends 0:53 without a word; later Slurm makes the folder again."""
    project = stage.project("resumable")
    project.change_sbatch("--hold")
    project.start_head()
    job = project.job()
    shutil.rmtree(project.root / ".snakemake" / "slurm_logs")
    stage.cluster.run("scontrol", "release", job)
    project.wait_at_work(1)
    project.finish(interruptions=0)
    record = stage.cluster.records(job, "State,ExitCode")[0]
    jobs = project.jobs_of_shards()
    assert (record, len(jobs)) in ((["FAILED", "0:53"], 2), (["COMPLETED", "0:0"], 1))
    if len(jobs) == 2:
        said = project.milepost("classify", "-", "--state=FAILED", "--exit-code=0:53", "--json")
        assert json.loads(said.stdout)["class"] == "storage"
        assert "output file could not be opened" in " ".join(
            project.milepost("why", job).stdout.split()
        )


@scene
def test_completed_with_a_truncated_artifact(stage: Stage) -> None:
    project = stage.project("tasks")
    project.start_head()
    assert project.wait_head() == 0, project.said()
    assert project.is_closed()
    project.square(2).write_text('{"square": ')
    verdict = project.verdict()
    assert (verdict["verdict"], verdict["scheduler"]) == ("SUSPECT", "completed")
    assert "score.json" in verdict["next_action"] and "--force" in verdict["command"]
    project.start_head()
    assert project.wait_head() == 0, project.said()
    assert_tasks_ran(project, {1: 1, 2: 2, 3: 1, 4: 1})
    assert project.verdict()["verdict"] == "DONE" and project.is_closed()
