"""Executions of jobs that the accounting of Slurm knows, as time at risk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from milepost.planner.exposure import End, Span
from milepost.slurm.jobids import parse_job_id
from milepost.slurm.records import Row

_MACHINE = frozenset(["NODE_FAIL", "BOOT_FAIL"])
"""Ends that are the machine's fault."""
TOGETHER_S = 60.0
"""Parts of one heterogeneous job that end so close to each other died of one cause."""


def read_rows(rows: Iterable[Row], until_s: float) -> list[tuple[Row, Span]]:
    """Each execution once, with its span; rows of steps and jobs that never had a node are not.

    What still ran at `until_s` is at risk up to then. A job that was requeued has a row for each
    execution. A heterogeneous job is one job for each part, but dies once.
    """
    found: dict[tuple[str, float], tuple[Row, Span]] = {}
    for row in rows:
        span = None if row.step is not None else _span(row, until_s)
        if span is not None:
            found.setdefault((row.job_id, span.start_s), (row, span))
    return list(_once(sorted(found.values(), key=lambda pair: pair[1].end_s)))


def _span(row: Row, until_s: float) -> Span | None:
    end = _end(row)
    is_over = row.state.is_terminal or row.state.is_requeued
    start_s, end_s = row.start, row.end if is_over else until_s
    if start_s is not None and end_s is None:
        end_s = start_s + (row.elapsed_s or 0.0)
    if end is not End.CENSORED:
        start_s = end_s if start_s is None else start_s
    if start_s is None or end_s is None or (end is End.CENSORED and end_s <= start_s):
        return None
    place = f"{row.partition}/{row.qos}" if row.partition or row.qos else ""
    return Span(start_s, max(start_s, end_s), row.node_count or 1, end, place, row.gpu_count)


def _end(row: Row) -> End:
    """`CANCELLED by 0` may be a preemption, a node lost at launch or an administrator: it is not
    told apart and does not count."""
    if row.state.base in _MACHINE:
        return End.FAILURE
    return End.PREEMPTION if row.state.base == "PREEMPTED" else End.CENSORED


def _once(pairs: Iterable[tuple[Row, Span]]) -> Iterator[tuple[Row, Span]]:
    """Only the first part of a heterogeneous job that dies counts as its failure."""
    died: dict[int, float] = {}
    for row, span in pairs:
        job = parse_job_id(row.job_id)
        if job.het is not None and span.end is not End.CENSORED:
            if span.end_s - died.get(job.base, float("-inf")) <= TOGETHER_S:
                yield row, replace(span, end=End.CENSORED)
                continue
            died[job.base] = span.end_s
        yield row, span
