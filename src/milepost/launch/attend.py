"""What a head does for the jobs of its folder besides submitting them.

* `requeue_preempted`: the executor waits for ever on a job that was preempted in CANCEL mode and
  killed before it could requeue itself. While slurmctld remembers such a job it is requeued.
* `wait_for_jobs`: a head that was killed leaves jobs behind that still run or wait. The executor
  cannot adopt them and would submit them a second time; so a new head waits for them first, and
  finds their results done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from milepost.errors import SchedulerError
from milepost.evidence.cancelled import note_cancelled
from milepost.paths import RunPaths
from milepost.slurm.control import requeue
from milepost.slurm.jobs import FolderJob, folder_jobs, may_have_jobs

SETTLE_S = 20.0
"""So long a preempted job may look ended before Slurm itself has put it back."""
LOOK_S = 5.0
SAY_EVERY_S = 60.0
ATTEND_EVERY_S = 20.0
MAX_REQUEUES = 20
"""Of one job, by one head: something else is wrong with a job that is preempted more often."""

Say = Callable[[str], None]


class Attendant:
    """Looks at the jobs of a folder again and again; counts what it did for each."""

    def __init__(self, folder: Path, say: Say) -> None:
        self._folder = folder
        self._say = say
        self._requeued: dict[str, int] = {}
        self._given_up: set[str] = set()

    def requeue_preempted(self) -> list[FolderJob]:
        """Requeue what was preempted for good, note what was cancelled; all jobs of the folder."""
        jobs = folder_jobs(self._folder)
        for job in jobs:
            ended_long_ago = job.end is not None and time.time() - job.end > SETTLE_S
            if job.is_cancelled and job.run is not None and job.shard is not None:
                note_cancelled(RunPaths(job.run, self._folder).shard(job.shard).live, job)
            if job.state.base == "PREEMPTED" and job.state.is_terminal and ended_long_ago:
                self._requeue(job)
        return jobs

    def _requeue(self, job: FolderJob) -> None:
        if job.job_id in self._given_up:
            return
        count = self._requeued[job.job_id] = self._requeued.get(job.job_id, 0) + 1
        what = f"job {job.job_id} ({job.run} {job.shard})"
        if count > MAX_REQUEUES:
            self._given_up.add(job.job_id)
            self._say(f"{what} was preempted {count} times; it is left alone: end the head, then")
            self._say("  run it again with another `slurm.qos` or `slurm.partition`")
            return
        try:
            requeue(job.job_id)
            self._say(f"{what} was preempted and cancelled; it is requeued and resumes")
        except SchedulerError as error:
            self._given_up.add(job.job_id)
            self._say(f"{what} was preempted and cannot be requeued: {error}")
            self._say("  end the head with Ctrl-C and run the same command again: it resumes")

    def wait_for_jobs(self) -> None:
        """Return when no job of the folder runs or waits any more.

        At once where nothing was ever given to Slurm. As long as Slurm is not heard, jobs may run:
        it is asked again, without end.
        """
        if not may_have_jobs(self._folder):
            return
        said_at = -SAY_EVERY_S
        while True:
            try:
                busy = [j for j in self.requeue_preempted() if not j.state.is_terminal]
                lines = _adoption(busy)
            except SchedulerError as error:
                lines = [
                    f"Slurm is not heard ({error.what}); jobs of a former head may run: asking "
                    "again (Ctrl-C to stop)"
                ]
            if not lines:
                return
            if time.monotonic() - said_at >= SAY_EVERY_S:
                said_at = time.monotonic()
                for line in lines:
                    self._say(line)
            time.sleep(LOOK_S)

    def attend(self) -> None:
        """Look after the jobs for ever; a query that fails is no evidence and changes nothing."""
        while True:
            try:
                self.requeue_preempted()
            except SchedulerError as error:
                self._say(f"Slurm was not heard, asking again: {error.what}")
            time.sleep(ATTEND_EVERY_S)


def _adoption(busy: list[FolderJob]) -> list[str]:
    """What to say about jobs that are waited for; nothing when there are none."""
    if not busy:
        return []
    running = sum(not job.state.is_waiting for job in busy)
    ids = ", ".join(job.job_id for job in busy[:5]) + (", …" if len(busy) > 5 else "")
    lines = [
        f"{running} jobs of a former head run and {len(busy) - running} wait ({ids}); they are "
        "adopted: waiting for them (Ctrl-C to stop, scancel them to start anew)"
    ]
    lines += [
        f"  job {job.job_id} will not start: milepost why {job.job_id}"
        for job in busy
        if job.state.is_waiting and not job.reason.helps_waiting
    ]
    return lines
