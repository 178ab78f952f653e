"""The jobs that Snakemake submitted from one folder, known by the comment it gives them.

The comment stands in the queue only, and as long as slurmctld remembers the job.
"""

from __future__ import annotations

import getpass
import os
import re
from dataclasses import dataclass
from pathlib import Path

from milepost.slurm.command import SEPARATOR, ask
from milepost.slurm.outlook import shard_of_comment
from milepost.slurm.reasons import Reason, parse_reason
from milepost.slurm.states import State, parse_state
from milepost.slurm.units import parse_time

_FIELDS = ("%i", "%T", "%r", "%e", "%Z", "%k")
_COMMENT = "rule_"
EXECUTOR_LOGS = Path(".snakemake/slurm_logs")
"""Where Snakemake's Slurm executor writes the logs of its jobs; it makes the folder at once."""
_JOB_ID = re.compile(rb'"slurm_job_id": "\d')


@dataclass(frozen=True, slots=True)
class FolderJob:
    """A job of this folder. `run` and `shard` are None for a job of another rule than `shard`.

    `end` is in seconds since the epoch, None or a forecast while it has not ended.
    """

    job_id: str
    state: State
    reason: Reason
    end: float | None
    run: str | None
    shard: str | None

    @property
    def is_cancelled(self) -> bool:
        """Did somebody take it out of the queue, or end it, for good?"""
        return self.state.base == "CANCELLED" and self.state.is_terminal


def folder_jobs(folder: Path) -> list[FolderJob]:
    """All jobs of this user that were submitted in `folder`, ended ones included while slurmctld
    remembers them. Raises NotHeard when squeue fails."""
    here = os.path.realpath(folder)
    out = ask(
        "squeue", "-h", "-r", "-u", getpass.getuser(), "-t", "all", "-o", SEPARATOR.join(_FIELDS)
    )
    jobs = []
    for line in out.splitlines():
        job_id, state, reason, end, place, comment = line.split(SEPARATOR, 5)
        if os.path.realpath(place) == here and comment.startswith(_COMMENT):
            run, shard = shard_of_comment(comment) or (None, None)
            jobs.append(
                FolderJob(
                    job_id.strip(),
                    parse_state(state),
                    parse_reason(reason),
                    parse_time(end),
                    run,
                    shard,
                )
            )
    return jobs


def may_have_jobs(folder: Path) -> bool:
    """Was anything of this folder ever given to Slurm? Without asking it: a machine may have
    Slurm's commands and no Slurm that answers."""
    if (folder / EXECUTOR_LOGS).is_dir():
        return True
    records = folder.glob("work/*/shards/*/attempts/*.json")
    return any(_JOB_ID.search(record.read_bytes()) for record in records)
