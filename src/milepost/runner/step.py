"""Inside a Slurm job the runner is a task of its own, so that Slurm's signals reach it.

Where processes are tracked by control groups, as on nearly every cluster, a signal goes to the
tasks of a step and not to their children. Below Snakemake's executor the runner would be such a
child and never hear a thing. So it starts itself again by `srun --overlap` as one more step of the
same job; everything between it and the batch script ignores URG, the signal the job asks for.
"""

from __future__ import annotations

import os
import shutil
import sys

from milepost.slurm.environment import inside_job

STEP_OF = "MILEPOST_STEP_OF"
"""Names the job that this process is a task of already."""


def become_step(cpus: int) -> None:
    """Replace this process by `srun` of itself, once per job; elsewhere do nothing."""
    job_id = inside_job()
    if job_id is None or os.environ.get(STEP_OF) == job_id:
        return
    srun = shutil.which("srun")
    if srun is None:
        print(
            f"milepost: inside Slurm job {job_id} but there is no srun on PATH (in a container?): "
            "its signals may not arrive, the runner relies on its own deadline",
            file=sys.stderr,
        )
        return
    os.environ[STEP_OF] = job_id
    command = [srun, "--overlap", f"--jobid={job_id}", "--ntasks=1", "--nodes=1"]
    command += [f"--cpus-per-task={cpus}", "--cpu-bind=none", "--kill-on-bad-exit=0"]
    os.execv(srun, [*command, sys.executable, "-m", "milepost.cli.main", *sys.argv[1:]])
