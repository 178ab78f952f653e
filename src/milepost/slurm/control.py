"""Tell slurmctld what to do with a job. Every refusal is a SchedulerError with Slurm's own word."""

from __future__ import annotations

from milepost.slurm.command import NotHeard, ask, failed, run
from milepost.slurm.details import job_details
from milepost.slurm.jobids import checked

_ALREADY_PENDING = "Job is pending execution"


def requeue(job_id: str) -> bool:
    """Put a running, or an ended job that slurmctld still knows, back into the queue.

    The job keeps its id and starts from the first line of its script. True when this call did it,
    False when the job was waiting already. Called inside the job it kills this process soon after.
    """
    (job,) = checked([job_id])
    said = run("scontrol", "requeue", job)
    if said.exit_code == 0:
        return True
    if _ALREADY_PENDING in said.err + said.out:
        return False
    raise failed(said)


def hold(job_id: str) -> None:
    """Keep a pending job from starting until it is released."""
    ask("scontrol", "hold", *checked([job_id]))


def release(job_id: str) -> None:
    """Let a held job start again when its turn comes."""
    ask("scontrol", "release", *checked([job_id]))


def cancel(job_id: str) -> None:
    """End a job, or take it out of the queue; a job that ended already is no error."""
    ask("scancel", *checked([job_id]))


def update_memory(job_id: str, mem_mb: int) -> None:
    """Change the memory per node that a pending job asks for."""
    (job,) = checked([job_id])
    ask("scontrol", "update", f"JobId={job}", f"MinMemoryNode={mem_mb}")


def preempt_time(job_id: str) -> float | None:
    """When Slurm decided to preempt the job, in seconds since the epoch; None when it did not.

    It is set as soon as the job is told to go, and tells preemption from a scancel. Raises
    SchedulerError when slurmctld does not know the job.
    """
    details = job_details(job_id)
    if details is None:
        raise NotHeard(
            f"Slurm does not know job {job_id} any more",
            fix=f"ask the accounting: milepost why {job_id}",
        )
    return details.preempt_time
