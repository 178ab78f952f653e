"""What a process can tell about the Slurm job it runs in, from its environment alone.

Snakemake's Slurm executor starts the rule inside a step of the job and drops most SLURM_* on the
way; the job id survives. What is not there is None: ask `slurm.queue.job_details` then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from milepost.slurm.units import parse_count


def inside_job(environ: Mapping[str, str] = os.environ) -> str | None:
    """The id of the job that this process runs in; None outside a job.

    For a task of an array it is the task's plain number, which every Slurm command takes. It is
    also set below `salloc`: such a job is no batch job and cannot be requeued.
    """
    job_id = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    return job_id if job_id and job_id.isdigit() else None


def step_id(environ: Mapping[str, str] = os.environ) -> str | None:
    """The step that this process runs in, such as `1`; None in the batch script itself."""
    return environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID") or None


def job_end_s(environ: Mapping[str, str] = os.environ) -> float | None:
    """When Slurm will end the job, in seconds since the epoch; None where it is not told."""
    value = parse_count(environ.get("SLURM_JOB_END_TIME", ""))
    return float(value) if value else None


def restart_count(environ: Mapping[str, str] = os.environ) -> int | None:
    """How often the job was requeued; None where it is not told. The lease counts attempts."""
    return parse_count(environ.get("SLURM_RESTART_COUNT", ""))


def node_name(environ: Mapping[str, str] = os.environ) -> str | None:
    """Slurm's name of this node; it may differ from the host name."""
    return environ.get("SLURMD_NODENAME") or None


def cpus_per_task(environ: Mapping[str, str] = os.environ) -> int | None:
    """The CPUs given to this step's task; None where it is not told."""
    return parse_count(environ.get("SLURM_CPUS_PER_TASK", ""))


def step_task(environ: Mapping[str, str] = os.environ) -> tuple[int, int, str] | None:
    """Rank, number of ranks and a name of the step that this process is a task of.

    The name is the same for all tasks of one start of the step. None outside a step (the batch
    script itself is none) and where the numbers are not told.
    """
    job, step = inside_job(environ), step_id(environ)
    rank = parse_count(environ.get("SLURM_PROCID", ""))
    count = parse_count(environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS", ""))
    if job is None or step is None or rank is None or count is None or rank >= count:
        return None
    return rank, count, f"{job}.{step}.{restart_count(environ) or 0}"
