"""Heads that die, submissions that lie, and jobs that never start."""

import json

import pytest

from helpers.slurm_project import Stage, scene

pytestmark = pytest.mark.slurm


@scene
def test_a_new_head_adopts_running_jobs(stage: Stage) -> None:
    project = stage.project("resumable")
    project.start_head()
    project.wait_at_work(1)
    project.kill_head()
    steps = project.steps_of()[1]
    project.wait("work without a head", lambda: project.steps_of()[1] > steps + 5)
    project.start_head()
    project.wait("the job's adoption", lambda: "they are adopted" in project.told())
    project.finish(interruptions=0)
    assert len(project.jobs_of_shards()) == 1
    assert len(project.attempts()) == 1


@scene
def test_sbatch_that_reports_an_error_although_the_job_exists(stage: Stage) -> None:
    project = stage.project("resumable")
    project.change_sbatch(fails=True)
    project.start_head()
    project.wait_at_work(1)
    project.wait("the second job", lambda: len(project.jobs()) == 2)
    project.finish(interruptions=0)
    assert len(project.attempts()) <= 2  # the second finds the work done
    assert set(project.steps_of()) == {1}


@scene
def test_held_job_is_named_with_its_remedy(stage: Stage) -> None:
    project = stage.project("resumable")
    project.change_sbatch("--hold")
    project.start_head()
    job = project.job()
    stage.cluster.wait("the hold", lambda: stage.cluster.fields(job)["Reason"] == "JobHeldUser")
    verdict = project.verdict()
    assert verdict["verdict"] == "PENDING"
    assert "JobHeldUser" in verdict["evidence"] and f"milepost why {job}" in verdict["next_action"]
    why = json.loads(project.milepost("why", "ends", "0001", "--json").stdout)
    assert why["waiting"]["reason"]["name"] == "JobHeldUser"
    stage.cluster.run("scontrol", "release", job)
    project.wait_at_work(1)
    project.finish(interruptions=0)


@scene
def test_job_over_its_partitions_limit_is_named(stage: Stage) -> None:
    project = stage.project("resumable", slurm={"partition": "short"})
    project.start_head()
    job = project.job()
    reason = "PartitionTimeLimit"
    stage.cluster.wait(reason, lambda: stage.cluster.fields(job)["Reason"] == reason)
    verdict = project.verdict()
    assert verdict["verdict"] == "PENDING" and reason in verdict["evidence"]
    assert f"milepost why {job}" in verdict["next_action"]
    text = " ".join(project.milepost("why", job).stdout.split())
    assert reason in text and "waiting does not help" in text


@scene
def test_job_whose_dependency_failed_is_named(stage: Stage) -> None:
    failed = stage.cluster.submit(stage.folder, "exit 1")
    assert stage.cluster.wait_end(failed) == "FAILED"
    project = stage.project("resumable")
    project.change_sbatch(f"--dependency=afterok:{failed}")
    project.start_head()
    job = project.job()
    reason = "DependencyNeverSatisfied"
    stage.cluster.wait(reason, lambda: stage.cluster.fields(job)["Reason"] == reason)
    verdict = project.verdict()
    assert reason in verdict["evidence"] and f"milepost why {job}" in verdict["next_action"]
    assert reason in project.milepost("why", job).stdout


@scene
def test_submit_refuses_what_would_wait_for_ever(stage: Stage) -> None:
    project = stage.fresh("resumable", upto="plan", slurm={"partition": "short"})
    done = project.milepost("submit", "ends", "--scheduler", "slurm")
    assert done.returncode == 20
    assert "partition short, MaxTime" in done.stderr and "nothing was launched" in done.stderr


@scene
def test_the_limit_on_the_number_of_jobs_is_met_before_the_launch(stage: Stage) -> None:
    one_each = {"tasks_per_shard": 1}
    project = stage.fresh("tasks", upto="plan", slurm={"qos": "limited"}, shards=one_each)
    project.start_head()
    assert project.wait_head() != 0
    assert "MaxSubmitJobs of QOS limited: 4 jobs at once are more than 2" in project.told()
    assert "nothing was launched" in project.told() and project.jobs() == []
    project.start_head("--jobs", "2")
    assert project.wait_head() == 0, project.said()
    assert project.is_closed()
    assert len(project.jobs_of_shards()) == 4 and len(project.notes()) == 4
