"""The time limit ends an attempt, with notice or without; the work goes on and costs no retry."""

import pytest

from helpers.slurm_project import Stage, deaf, scene

pytestmark = pytest.mark.slurm
IS_LONG = True
MINUTES = {"cpus": 1, "mem_mb": 600, "gpus": 0, "runtime_s": 180}
"""The signal is asked for 60 s before the end and comes up to half a minute late: still well
before the runner's own deadline, a tenth of the walltime before the end."""
MINUTES_S = 300.0
LONGEST_S = 160.0
"""A minute, and the half a minute after which slurmctld looks at limits again."""


@scene
def test_the_signal_before_the_limit_makes_a_checkpoint_and_requeues(stage: Stage) -> None:
    project = stage.project("resumable", resources=MINUTES)
    project.start_head()
    project.wait_at_work(1)
    project.wait_at_work(2, patience_s=MINUTES_S)
    project.finish(interruptions=1)
    (job,) = project.jobs_of_shards()
    first, last = project.attempts()
    assert project.restarts(job) == 1
    assert first["stop"] == "signal URG" and last["stop"] == "done"
    assert last["restored"]["lost_s"] == 0


@scene
def test_limit_lowered_below_the_elapsed_time(stage: Stage) -> None:
    """The runner believes in ten minutes; all the notice that is left is KillWait."""
    project = stage.project("resumable")
    project.start_head()
    project.wait_at_work(1)
    job = project.job()
    wait_a_minute(stage, job)
    stage.cluster.run("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    project.wait_at_work(2, patience_s=LONGEST_S)
    project.finish(interruptions=1)
    assert project.jobs_of_shards() == [job] and project.restarts(job) == 1
    first = project.attempts()[0]
    assert first["stop"] in ("signal URG", "signal TERM")  # whichever slurmctld sent first
    assert first["then"].startswith("requeued: its ")


@scene
def test_killed_at_the_limit_without_a_word(stage: Stage) -> None:
    """The runner sleeps through all notice. A retry goes on from the last checkpoint."""
    project = stage.project("resumable")
    project.start_head()
    project.wait_at_work(1)
    job = project.job()
    wait_a_minute(stage, job)
    with project.head_stopped():  # it would try again before anybody could look
        with deaf(project.attempts()[0]["pid"]):
            stage.cluster.run("scontrol", "update", f"JobId={job}", "TimeLimit=1")
            assert stage.cluster.wait_end(job, LONGEST_S) == "TIMEOUT"
        row = project.wait_verdict("INTERRUPTED", scheduler="timeout")
        assert "scheduler/time_limit, longer_walltime" in row["evidence"]
    project.wait_at_work(2, patience_s=LONGEST_S)
    assert len(project.jobs_of_shards()) == 2
    project.finish(interruptions=1)
    told = project.said_by_slurm(1)
    assert told["finding"]["subclass"] == "time_limit"
    assert project.attempts()[1]["stop"] == "done"


def wait_a_minute(stage: Stage, job: str) -> None:
    """Until the job has run for longer than the smallest limit that Slurm knows."""

    def is_older() -> bool:
        elapsed = stage.cluster.run("squeue", "-h", "-j", job, "-o", "%M").strip()
        return ":" in elapsed and int(elapsed.split(":")[0]) >= 1

    stage.cluster.wait("a minute of the job", is_older, 100)
