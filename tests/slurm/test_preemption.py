"""Preempted work goes on from its checkpoint, whoever puts the job back, and costs no retry."""

import pytest

from helpers.slurm_project import LARGE, SlurmProject, Stage, deaf, scene

pytestmark = pytest.mark.slurm
CANCELLABLE = {"qos": "cancellable", "partition": "cancel"}


def assert_one_job(project: SlurmProject, restarts: int) -> None:
    (job,) = project.jobs_of_shards()
    assert project.restarts(job) == restarts
    assert len(project.attempts()) == restarts + 1


@scene
def test_preempted_twice_and_requeued_by_slurm(stage: Stage) -> None:
    project = stage.project("resumable", slurm={"qos": "low"}, resources=LARGE)
    project.start_head()
    job = project.job()
    for attempt in (1, 2):
        project.wait_at_work(attempt)
        stage.take_node(stage.node_of(job))
        project.wait_attempt_ended(attempt)
        assert project.verdict()["verdict"] in ("RUNNING", "PENDING")
    project.wait_at_work(3)
    project.finish(interruptions=2)
    assert_one_job(project, restarts=2)
    assert [a["stop"] for a in project.attempts()] == ["signal TERM", "signal TERM", "done"]
    assert all(a["restored"]["lost_s"] == 0 for a in project.attempts()[1:])


@scene
def test_preempted_in_cancel_mode_the_runner_requeues_itself(stage: Stage) -> None:
    project = stage.project("resumable", slurm=CANCELLABLE, resources=LARGE)
    project.start_head()
    project.wait_at_work(1)
    stage.take_node(stage.node_of(project.job()))
    project.wait_at_work(2)
    project.finish(interruptions=1)
    assert_one_job(project, restarts=1)
    first = project.attempts()[0]
    assert (first["stop"], first["then"]) == ("signal TERM", "requeued: it was preempted")


@scene
def test_killed_by_preemption_before_it_could_requeue(stage: Stage) -> None:
    """The runner sleeps through its notice; who looks after the jobs puts it back."""
    project = stage.project("resumable", slurm=CANCELLABLE, resources=LARGE)
    project.start_head()
    project.wait_at_work(1)
    job = project.job()
    with deaf(project.attempts()[0]["pid"]):
        stage.take_node(stage.node_of(job))
        stage.cluster.wait_state(job, "PREEMPTED", patience_s=60)
    assert project.attempts()[0]["ended"] is None
    project.wait_at_work(2)
    project.finish(interruptions=1)
    assert_one_job(project, restarts=1)
    assert "was preempted and cancelled; it is requeued and resumes" in project.told()


@scene
def test_of_a_batch_only_the_task_in_flight_runs_again(stage: Stage) -> None:
    project = stage.project("tasks", slurm={"qos": "low"}, resources=LARGE)
    project.flag("slow/2")
    project.start_head()
    project.wait("task 2 in flight", lambda: (1, 2) in project.notes())
    stage.take_node(stage.node_of(project.job()))
    project.wait("task 2 again", lambda: (2, 2) in project.notes())
    project.flag("go")
    assert project.wait_head() == 0, project.said()
    assert sorted(number for _, number in project.notes()) == [1, 2, 2, 3, 4]
    assert project.verdict()["verdict"] == "DONE" and project.is_closed()
    assert_one_job(project, restarts=1)
    assert project.attempts()[0]["counts"] == {"done": 1, "failed": 0}
