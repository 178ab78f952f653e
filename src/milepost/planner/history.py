"""What is known of failures: the user's jobs in the accounting, and the run's own attempts.

An attempt that ran in a job that the accounting lists counts once, as that job: Slurm knows better
whether its node died or it was preempted. What the attempt itself said is used where Slurm only
knows that the job ended.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from milepost.clock import epoch
from milepost.planner.accounting import read_rows
from milepost.planner.exposure import End, Span, clip
from milepost.slurm.past import PastJobs

WINDOW_DAYS = 90.0
"""What is older says nothing any more: a bad month does not decide for ever."""
_DAY_S = 86400.0
_SLACK_S = 60.0
"""An attempt ends a moment before or after its job."""
_TRANSIENT = ("retry_same", "resume_from_checkpoint")
_PREEMPTED = ("requeued: it was preempted", "requeued: Slurm has put it back")
_REQUEUED = ("requeued: its walltime ends", "requeued: its time limit is reached")
_OWN_WISH = ("signal URG", "signal INT", "walltime", "cancelled")

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over executions. `failures` maps a number of nodes to how many jobs of that size failed.

    `preemptible_s` is the time of those that ran where somebody was preempted: partitions and QOS.
    `gpu_s` is None when it is not known how many GPUs any of them had.
    """

    executions: int = 0
    node_s: float = 0.0
    job_s: float = 0.0
    gpu_s: float | None = None
    failures: Mapping[int, int] = field(default_factory=dict)
    preemptions: int = 0
    preemptible_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Source:
    """Where executions come from; `said` tells what was asked, or why nobody answered.

    `spans` are empty where only the sums were kept. Nothing follows from a source that was not
    heard: then nothing was counted.
    """

    name: str
    said: str
    tally: Tally = field(default_factory=Tally)
    spans: tuple[Span, ...] = ()
    is_heard: bool = True


@dataclass(frozen=True, slots=True)
class History:
    """The sources within the window, each execution in one of them."""

    sources: tuple[Source, ...] = ()
    window_days: float = WINDOW_DAYS

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(span for source in self.sources for span in source.spans)


def gives_way(history: History, partition: str | None, qos: str | None) -> bool:
    """Was somebody preempted in the partition or QOS that a run names?"""
    for span in history.spans:
        if span.end is End.PREEMPTION and span.place:
            place = span.place.split("/")
            if (partition is not None and place[0] == partition) or (
                qos is not None and place[-1] == qos
            ):
                return True
    return False


def read_history(
    attempts: Sequence[Record] = (),
    jobs: PastJobs | None = None,
    window_days: float = WINDOW_DAYS,
) -> History:
    """Put both together; pure. The window ends when the accounting was asked, else with the last
    sign of any attempt."""
    is_heard = jobs is not None and jobs.complaint is None
    found = read_rows(jobs.rows, jobs.until_s) if jobs is not None and is_heard else []
    mine = {one["slurm_job_id"] for one in attempts if one.get("slurm_job_id")}
    listed = mine & {row.raw_id for row, _ in found}
    inside = [one for one in attempts if one.get("slurm_job_id") in listed]
    alone = [one for one in attempts if one.get("slurm_job_id") not in listed]
    own = [_told(row.raw_id, span, inside) for row, span in found if row.raw_id in listed]
    own += [span for one in alone if (span := attempt_span(one)) is not None]
    last_s = max((span.end_s for span in own), default=0.0)
    until_s = jobs.until_s if jobs is not None and is_heard else last_s
    since_s = until_s - window_days * _DAY_S
    others = clip((span for row, span in found if row.raw_id not in listed), since_s, until_s)
    own_spans = clip(own, since_s)
    preempted = [one for one in (*others, *own_spans) if one.end is End.PREEMPTION]
    places = {span.place for span in preempted}
    return History(
        (
            Source("accounting", _said(jobs, window_days), tally(others, places), others, is_heard),
            Source("attempts", "attempts of this run", tally(own_spans, places), own_spans),
        ),
        window_days,
    )


def tally(spans: Sequence[Span], places: Collection[str]) -> Tally:
    """The sums; `places` are where somebody was preempted."""
    known = [span.gpus * span.seconds for span in spans if span.gpus is not None]
    failed = Counter(span.nodes for span in spans if span.end is End.FAILURE)
    return Tally(
        executions=len(spans),
        node_s=math.fsum(span.nodes * span.seconds for span in spans),
        job_s=math.fsum(span.seconds for span in spans),
        gpu_s=math.fsum(known) if known else None,
        failures=dict(sorted(failed.items())),
        preemptions=sum(span.end is End.PREEMPTION for span in spans),
        preemptible_s=math.fsum(span.seconds for span in spans if span.place in places),
    )


def _said(jobs: PastJobs | None, window_days: float) -> str:
    if jobs is None:
        return "not asked"
    if jobs.complaint is not None:
        return f"not heard: {jobs.complaint}"
    return f"sacct, the user's jobs of the last {window_days:g} days"


def _told(job_id: str, span: Span, attempts: Iterable[Record]) -> Span:
    """The span, with the end that an attempt in it told of where Slurm tells none."""
    if span.end is not End.CENSORED:
        return span
    for one in attempts:
        if one["slurm_job_id"] != job_id or one.get("stop") is None or not one.get("started"):
            continue
        end, started_s = how_it_ended(one), epoch(one["started"])
        is_inside = span.start_s - _SLACK_S <= started_s <= span.end_s + _SLACK_S
        if end is not End.CENSORED and is_inside:
            return replace(span, end=end)
    return span


def attempt_span(record: Record) -> Span | None:
    """The time at risk of one attempt; up to its last sign when it could not say how it ended.

    None when it has no start.
    """
    if not record.get("started"):
        return None
    start_s = epoch(record["started"])
    last = record.get("ended") or record.get("last_sign")
    end_s = start_s if last is None else max(start_s, epoch(last))
    return Span(start_s, end_s, end=how_it_ended(record))


def how_it_ended(record: Record) -> End:
    """A failure is an end that another try can pass (node lost, killed, storage gone).

    An end that belongs to the work (wrong data, too little memory or time) or to somebody's wish
    is no failure. `running` marks an attempt that is still at work.
    """
    stop, finding = record.get("stop"), record.get("finding") or {}
    if record.get("running"):
        return End.CENSORED
    if stop is None:
        return End.FAILURE
    if record.get("then") in _PREEMPTED or finding.get("subclass") == "preempted":
        return End.PREEMPTION
    if stop in _OWN_WISH or record.get("then") in _REQUEUED:
        return End.CENSORED
    if str(stop).startswith("signal"):
        return End.PREEMPTION
    is_end = stop in ("failed", "error") or str(stop).startswith("Slurm says")
    return End.FAILURE if is_end and finding.get("action") in _TRANSIENT else End.CENSORED
