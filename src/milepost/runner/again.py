"""May a retry that nobody asked for try a shard again?

Snakemake retries a failed job without looking at why it failed. What a person cancelled, what
failed in a way that the same again cannot mend, and what was retried often enough is refused
here, before the lease is taken: the evidence of the attempt that failed stays the last.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from milepost.config.spec import RunSpec
from milepost.errors import Refused, SchedulerError
from milepost.evidence.cancelled import cancelled_job, note_cancelled
from milepost.evidence.unsaid import completed
from milepost.lease import Holder, attempt_records, read_holder
from milepost.model import WorkKind
from milepost.paths import RunPaths
from milepost.runner.attempt import is_final
from milepost.runner.held import may_take
from milepost.slurm.environment import inside_job
from milepost.slurm.jobs import folder_jobs


def check_retry(spec: RunSpec, paths: RunPaths, shard: str, automatic: int) -> None:
    """Raise Refused when retry number `automatic` (0: a person asked) is pointless or too many.

    While somebody holds the lease nothing is known yet about how that attempt ends.
    """
    if automatic == 0:
        return
    files = paths.shard(shard)
    holder = read_holder(files.lease)
    if holder is not None and _is_at_work(holder):
        return
    on_slurm = inside_job() is not None
    if on_slurm:
        _note_cancelled_jobs(paths, shard)
    attempts = [completed(files.live, record) for record in attempt_records(files.live)]
    reason = _reason(spec, attempts, automatic, on_slurm=on_slurm)
    cancelled = cancelled_job(files.live, [record["started"] for record in attempts])
    if reason is None and cancelled is not None:
        reason = f"job {cancelled} was cancelled before it started"
    if reason is not None:
        start = "snakemake --profile slurm" if on_slurm else "snakemake -c2"
        raise Refused(
            f"shard {shard} is not tried again unasked: {reason}",
            where=files.live,
            fix=f"mend what is wrong; if it is still wanted, end the head and run: {start} {files.marker}",
        )


def _is_at_work(holder: Holder) -> bool:
    """As the lease sees it: the process table here, the scheduler elsewhere."""
    if holder.host == socket.gethostname():
        return holder.is_alive() is not False
    return not may_take(holder)


def _reason(
    spec: RunSpec, attempts: Sequence[Mapping[str, Any]], automatic: int, *, on_slurm: bool
) -> str | None:
    if automatic > spec.retry_limit:
        return f"retry {automatic}, and the contract allows {spec.retry_limit} (retry.limit)"
    if not attempts:
        return None
    last = attempts[-1]
    number, finding = last["attempt"], last.get("finding")
    if last.get("stop") == "cancelled":
        return f"attempt {number} (job {last['slurm_job_id']}) was cancelled"
    is_single = spec.work.kind is not WorkKind.BATCH  # of a batch other tasks may be open
    if is_single and finding is not None and is_final(finding, on_slurm=on_slurm):
        why = f"{finding['class']}/{finding['subclass']}"
        return f"attempt {number} failed by {why}, whose remedy is {finding['action']}"
    return None


def _note_cancelled_jobs(paths: RunPaths, shard: str) -> None:
    """Write down what slurmctld still remembers; when it is not heard, nothing follows."""
    try:
        jobs = folder_jobs(paths.root)
    except SchedulerError:
        return
    for job in jobs:
        if (job.run, job.shard) == (paths.run, shard) and job.is_cancelled:
            note_cancelled(paths.shard(shard).live, job)
