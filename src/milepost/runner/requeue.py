"""After a stop inside a Slurm job: does the job go back into the queue, and by whom?

* Our own deadline, or the signal before the walltime: the runner requeues the job.
* TERM at the time limit: the same, as long as the notice lasts.
* TERM because of preemption (slurmctld then shows a PreemptTime): Slurm requeues by itself in
  REQUEUE mode; in CANCEL mode it would end the job for good, so the runner requeues it.
* TERM without either: somebody cancelled the job, and it stays cancelled.

The same job id starts again from the first line of its script and resumes; the executor sees one
job that waits again, and no retry is spent.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from milepost.errors import SchedulerError
from milepost.slurm.control import requeue
from milepost.slurm.environment import inside_job
from milepost.slurm.queue import job_details

LIMIT_SLACK_S = 90.0
"""Slurm looks at time limits now and then: TERM so near the end is the limit's."""


def requeue_after_stop(stop: str, say: Callable[[str], None]) -> bool:
    """Requeue the job of this process if its stop asks for it; whether this call did it."""
    job_id = inside_job()
    if job_id is None:
        return False
    try:
        reason = _reason(stop, job_id)
        if reason is None:
            say(f"job {job_id} was cancelled; it is not requeued")
            return False
        done = requeue(job_id)
    except SchedulerError as error:
        say(f"the job could not be requeued: {error}")
        return False
    say(f"job {job_id} is requeued ({reason}) and resumes" if done else f"job {job_id} waits again")
    return done


def _reason(stop: str, job_id: str) -> str | None:
    if stop in ("walltime", "signal URG"):
        return "its walltime ends"
    details = job_details(job_id)
    if details is None:
        return None
    if details.preempt_time is not None:
        return "it was preempted"
    if details.end is not None and details.end - time.time() < LIMIT_SLACK_S:
        started = details.start or 0.0
        limit = details.time_limit_s
        if limit is not None and time.time() - started >= limit - LIMIT_SLACK_S:
            return "its time limit is reached"
    return None
