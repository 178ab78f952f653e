"""Is the holder of a lease on another machine still at work? Slurm's word, where it has one."""

from __future__ import annotations

from milepost.errors import SchedulerError
from milepost.lease import STALE_S, Holder
from milepost.slurm.environment import inside_job
from milepost.slurm.queue import queue

SILENT_S = 4 * STALE_S
"""Without a scheduler to ask, a heart that has not beaten for so long is dead."""


def may_take(holder: Holder) -> bool:
    """May the shard be taken from a holder that this machine cannot look at?

    An earlier attempt of this very job is over: Slurm never runs a job twice at once. So is one of
    another job that ended, that waits to start again, or that slurmctld does not list. Not heard
    is no permission.
    """
    mine = inside_job()
    if holder.slurm_job_id is None:
        return holder.age_s() > SILENT_S
    if holder.slurm_job_id == mine:
        return True
    try:
        entry = queue([holder.slurm_job_id]).get(holder.slurm_job_id)
    except SchedulerError:
        return False
    return entry is None or entry.state.is_terminal or entry.state.is_waiting
