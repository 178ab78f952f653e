"""Accounting records: rows of sacct joined into one record an attempt, whatever the format was.

A job that was requeued has one job row an attempt under the same id, each followed by the rows of
its steps. The job row tells how the batch script ended; a step may know better.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from milepost.slurm.exitcode import OOM_SIGNAL, ExitCode
from milepost.slurm.states import State


@dataclass(frozen=True, slots=True)
class Row:
    """One row of sacct: of a job when `step` is None, else of `batch`, `extern`, `0`, ….

    Times are seconds since the epoch. None is what was not recorded.
    """

    job_id: str
    raw_id: str
    step: str | None
    state: State
    exit_code: ExitCode | None
    submit: float | None = None
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    elapsed_s: float | None = None
    cpu_s: float | None = None
    max_rss_bytes: int | None = None
    req_mem_bytes: int | None = None
    req_cpus: int | None = None
    cpus: int | None = None
    time_limit_s: float | None = None
    nodes: str | None = None
    partition: str = ""
    qos: str = ""
    account: str = ""
    reason: str | None = None
    name: str = ""
    restarts: int | None = None
    derived_exit_code: ExitCode | None = None
    node_count: int | None = None
    gpu_count: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """What the accounting knows of one execution of a job.

    `number` counts the attempts of this job id from 0, as Slurm counts restarts. `state` is the
    joined one, `job_state` that of the job row. `max_rss_bytes` is the largest task of any step,
    sampled: a memory that filled in a moment is not seen. `cpus` were given, `req_cpus` asked
    for; `req_mem_bytes` is for the whole job where Slurm says so, else as it was asked for.
    """

    job_id: str
    raw_id: str
    number: int
    state: State
    job_state: State
    exit_code: ExitCode | None
    derived_exit_code: ExitCode | None
    submit: float | None
    eligible: float | None
    start: float | None
    end: float | None
    elapsed_s: float | None
    cpu_s: float | None
    max_rss_bytes: int | None
    req_mem_bytes: int | None
    req_cpus: int | None
    cpus: int | None
    time_limit_s: float | None
    nodes: str | None
    partition: str
    qos: str
    account: str
    reason: str | None
    name: str
    steps: tuple[Row, ...] = ()

    @property
    def has_run(self) -> bool:
        """Did it get as far as running for a moment?"""
        return self.start is not None and bool(self.elapsed_s or self.steps)


def join(rows: Iterable[Row]) -> dict[str, list[AttemptRecord]]:
    """Attempts of each job, oldest first."""
    attempts: dict[str, list[tuple[Row, list[Row]]]] = {}
    early: dict[str, list[Row]] = {}
    for row in rows:
        known = attempts.setdefault(row.job_id, [])
        if row.step is None:
            known.append((row, early.pop(row.job_id, [])))
        elif known:
            known[-1][1].append(row)
        else:
            early.setdefault(row.job_id, []).append(row)
    return {job_id: _ordered(pairs) for job_id, pairs in attempts.items() if pairs}


def _ordered(pairs: list[tuple[Row, list[Row]]]) -> list[AttemptRecord]:
    pairs = sorted(pairs, key=lambda pair: _age(pair[0]))
    return [_attempt(number, job, steps) for number, (job, steps) in enumerate(pairs)]


def _age(job: Row) -> tuple[float, float, float]:
    """Restarts where recorded, then the time of submission (new for each attempt), then start."""
    late = float("inf")
    return (
        float(job.restarts or 0),
        late if job.submit is None else job.submit,
        late if job.start is None else job.start,
    )


def _attempt(number: int, job: Row, steps: list[Row]) -> AttemptRecord:
    is_ended = job.state.is_terminal or job.state.is_requeued
    return AttemptRecord(
        job_id=job.job_id,
        raw_id=job.raw_id,
        number=number if job.restarts is None else job.restarts,
        state=joined_state(job, steps),
        job_state=job.state,
        exit_code=job.exit_code,
        derived_exit_code=job.derived_exit_code,
        submit=job.submit,
        eligible=job.eligible,
        start=job.start,
        end=job.end if is_ended else None,
        elapsed_s=job.elapsed_s,
        cpu_s=_cpu_s(job, steps),
        max_rss_bytes=max((s.max_rss_bytes for s in steps if s.max_rss_bytes), default=None),
        req_mem_bytes=job.req_mem_bytes,
        req_cpus=job.req_cpus,
        cpus=job.cpus,
        time_limit_s=job.time_limit_s,
        nodes=job.nodes,
        partition=job.partition,
        qos=job.qos,
        account=job.account,
        reason=job.reason,
        name=job.name,
        steps=tuple(steps),
    )


def joined_state(job: Row, steps: Iterable[Row]) -> State:
    """The state of the job together with its steps.

    A step that ran out of memory makes a COMPLETED or FAILED job out of memory: the script may
    have gone on without the result. `extern` holds no work. Every other state stands.
    """
    if job.state.base not in ("COMPLETED", "FAILED") or not job.state.is_terminal:
        return job.state
    rows = [job, *(step for step in steps if step.step != "extern")]
    if any(_is_out_of_memory(row) for row in rows):
        return replace(job.state, base="OUT_OF_MEMORY")
    return job.state


def _is_out_of_memory(row: Row) -> bool:
    killed = row.exit_code is not None and row.exit_code.signal == OOM_SIGNAL
    return killed or row.state.base == "OUT_OF_MEMORY"


def _cpu_s(job: Row, steps: list[Row]) -> float | None:
    """CPU seconds of the job row; of the steps where the job row has none."""
    if job.cpu_s:
        return job.cpu_s
    measured = [step.cpu_s for step in steps if step.cpu_s is not None and step.step != "extern"]
    return sum(measured) if measured and sum(measured) else None
