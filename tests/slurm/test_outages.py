"""Nodes and daemons that go away. These tests disturb the whole cluster, so they run one by one,
and only while nobody else's jobs run."""

import time

import pytest

from helpers.slurm_cluster import Cluster
from helpers.slurm_project import Stage, scene

pytestmark = pytest.mark.slurm
ALONE = True
QUIET_S = 600.0
FORGOTTEN_S = 200.0
"""slurmctld of the testbed forgets an ended job after a minute, when it looks next."""


def wait_quiet(cluster: Cluster, *mine: str) -> None:
    """Until no job runs or starts but those named; held ones are in nobody's way."""

    def others() -> set[str]:
        rows = cluster.run("squeue", "-h", "-o", "%i %T %r").splitlines()
        words = [row.split(maxsplit=2) for row in rows]
        return {w[0] for w in words if not w[2].startswith("JobHeld")} - set(mine)

    cluster.wait("a quiet cluster", lambda: not others(), QUIET_S)


@scene
def test_node_killed_under_the_work(stage: Stage) -> None:
    wait_quiet(stage.cluster)
    project = stage.project("resumable")
    project.start_head()
    project.wait_at_work(1)
    job = project.job()
    wait_quiet(stage.cluster, job)
    node = stage.node_of(job)
    stage.cluster.testbed("kill-node", node)
    try:
        project.wait_at_work(2, patience_s=120)
        assert stage.node_of(job) != node  # the node that failed is down
    finally:
        stage.cluster.testbed("start-node", node)
    project.finish(interruptions=1)
    assert project.jobs_of_shards() == [job]
    first, last = project.attempts()
    assert first["ended"] is None and last["stop"] == "done"
    states = [row[0] for row in stage.cluster.records(job, "State,JobID") if row[1] == job]
    assert states == ["NODE_FAIL", "COMPLETED"]


@scene
def test_node_drained_lets_the_work_end(stage: Stage) -> None:
    wait_quiet(stage.cluster)
    project = stage.project("resumable")
    project.start_head()
    project.wait_at_work(1)
    job = project.job()
    node = f"NodeName={stage.node_of(job)}"
    stage.cluster.run("scontrol", "update", node, "State=DRAIN", "Reason=test")
    try:
        assert project.verdict()["verdict"] == "RUNNING"
        project.finish(interruptions=0)
    finally:
        stage.cluster.run("scontrol", "update", node, "State=RESUME")
    assert project.jobs_of_shards() == [job] and len(project.attempts()) == 1


@scene
def test_slurmctld_restarted_under_the_work(stage: Stage) -> None:
    wait_quiet(stage.cluster)
    project = stage.project("resumable")
    project.start_head()
    project.wait_at_work(1)
    job = project.job()
    stage.cluster.testbed("stop", "slurmctld")
    try:
        unheard = project.verdict()
        steps = project.steps_of()[1]
        project.wait("work without slurmctld", lambda: project.steps_of()[1] > steps + 5)
    finally:
        stage.cluster.testbed("start", "slurmctld")
    assert (unheard["verdict"], unheard["scheduler"]) == ("UNKNOWN", "not_heard")
    assert "resubmit nothing" in unheard["next_action"]
    project.wait_verdict("RUNNING", scheduler="alive")
    project.finish(interruptions=0)
    assert project.jobs_of_shards() == [job] and len(project.attempts()) == 1


@scene
def test_slurmdbd_away_for_longer_than_slurmctld_remembers(stage: Stage) -> None:
    """The job ends meanwhile: nobody can say how, until the accounting has caught up."""
    wait_quiet(stage.cluster)
    project = stage.project("resumable")
    project.start_head()
    project.wait_at_work(1)
    job = project.job()
    stage.cluster.testbed("stop", "slurmdbd")
    try:
        began = time.monotonic()
        project.flag("go")
        project.wait_attempt_ended(1)
        gone = "slurmctld to forget the job"
        stage.cluster.wait(gone, lambda: not stage.cluster.state(job), FORGOTTEN_S)
        unheard = project.verdict()
        assert time.monotonic() - began > 60
        assert project.head is not None and project.head.poll() is None
    finally:
        stage.cluster.testbed("start", "slurmdbd")
    assert (unheard["verdict"], unheard["scheduler"]) == ("UNKNOWN", "not_heard")
    project.wait_verdict("DONE", scheduler="completed", patience_s=90)
    project.finish(interruptions=0)
    assert project.jobs_of_shards() == [job] and len(project.attempts()) == 1
