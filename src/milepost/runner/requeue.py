"""After a stop inside a Slurm job: does the job go back into the queue, and by whom?

* Our own deadline, or the signal before the walltime: the runner requeues the job.
* TERM at the time limit: the same, as long as the notice lasts.
* TERM because of preemption: in REQUEUE mode Slurm has put the job back already; in CANCEL mode it
  shows a PreemptTime and would end the job for good, so the runner requeues it.
* TERM without any of these: somebody cancelled the job, and it stays cancelled.

The same job id starts again from the first line of its script and resumes; the executor sees one
job that waits again, and no retry is spent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from milepost.errors import SchedulerError
from milepost.slurm.control import requeue
from milepost.slurm.details import JobDetails
from milepost.slurm.environment import inside_job
from milepost.slurm.queue import job_details

WALLTIME = "its walltime ends"
TIME_LIMIT = "its time limit is reached"
LIMIT_SLACK_S = 2.0
"""Slurm ends a job at or after its limit; clocks differ by less than this."""


@dataclass(frozen=True, slots=True)
class After:
    """What follows after a stop: `reason` to requeue the job; None when it was cancelled.

    `is_known` is False when Slurm could not be asked.
    """

    reason: str | None
    is_known: bool = True

    @property
    def is_cancelled(self) -> bool:
        return self.is_known and self.reason is None

    def record(self) -> dict[str, str]:
        """What the attempt's record says about it."""
        if self.is_cancelled:
            return {"stop": "cancelled"}
        return {"then": f"requeued: {self.reason}"} if self.reason else {}


def after_stop(job_id: str, stop: str, notice: str, say: Callable[[str], None]) -> After:
    """Ask why the job is to stop, and so what follows.

    `notice` is the signal that the job asked for before its walltime, such as `URG`.
    """
    is_notice = stop == f"signal {notice}"
    if stop == "walltime" or (is_notice and notice != "TERM"):
        return After(WALLTIME)
    try:
        after = After(_reason(job_id, is_notice=is_notice))
    except SchedulerError as error:
        say(f"Slurm does not say why the job stops: {error}")
        return After(None, is_known=False)
    if after.is_cancelled:
        say(f"job {job_id} was cancelled; it is not requeued")
    return after


def requeue_job(job_id: str, after: After, say: Callable[[str], None]) -> bool:
    """Requeue the job if that follows; whether this call did it. It ends this process soon after."""
    if after.reason is None:
        return False
    try:
        done = requeue(job_id)
    except SchedulerError as error:
        say(f"the job could not be requeued: {error}")
        return False
    if done:
        say(f"job {job_id} is requeued ({after.reason}) and resumes")
    else:
        say(f"job {job_id} waits again ({after.reason}) and resumes")
    return done


def _reason(job_id: str, *, is_notice: bool) -> str | None:
    """Why the job got TERM. It still runs: then TERM may be the notice that it asked for."""
    details = job_details(job_id)
    if details is None:
        return None
    if details.preempt_time is not None:
        return "it was preempted"
    if _is_going_back(details):
        return "Slurm has put it back"
    if _is_at_limit(details):
        return TIME_LIMIT
    return WALLTIME if is_notice and details.state.base == "RUNNING" else None


def _is_going_back(details: JobDetails) -> bool:
    """Is it waiting again already, or only cleaning up before that?

    Slurm says COMPLETING in both cases; a job that ended for good has an end that is past.
    """
    if details.state.is_waiting:
        return True
    is_completing = "COMPLETING" in details.state.flags
    return is_completing and (details.end is None or details.end > time.time() + 1.0)


def _is_at_limit(details: JobDetails) -> bool:
    """Slurm says TimeLimit as soon as it ends a job for it; the clock is the older witness."""
    if details.reason.name == "TimeLimit":
        return True
    start, limit_s = details.start, details.time_limit_s
    if start is None or limit_s is None:
        return False
    return time.time() - start >= limit_s - LIMIT_SLACK_S


def remaining_s() -> float | None:
    """How long Slurm lets the job of this process run; None outside a job or when not heard."""
    job_id = inside_job()
    if job_id is None:
        return None
    try:
        details = job_details(job_id)
    except SchedulerError:
        return None
    if details is None or details.start is None or details.time_limit_s in (None, float("inf")):
        return None
    return details.start + float(details.time_limit_s or 0.0) - time.time()
