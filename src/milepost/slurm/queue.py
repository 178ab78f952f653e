"""What slurmctld lists: the queue by `squeue`. `slurm.details` has one job in full.

It forgets an ended job after MinJobAge (five minutes on most sites).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from milepost.slurm.command import SEPARATOR, Said, ask, failed, run
from milepost.slurm.details import UNKNOWN_JOB, JobDetails, job_details, parse_fields
from milepost.slurm.jobids import batches, checked, expand
from milepost.slurm.reasons import Reason, parse_reason
from milepost.slurm.states import State, parse_state
from milepost.slurm.units import parse_count, parse_duration, parse_time

__all__ = ["JobDetails", "QueueEntry", "job_details", "parse_fields", "ping", "queue"]

_FIELDS = ("%i", "%A", "%T", "%r", "%N", "%V", "%S", "%e", "%l", "%P", "%q", "%a", "%Q", "%E", "%j")


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A job as squeue lists it; times in seconds since the epoch, None where there is none.

    `start` and `end` are forecasts while it is pending. `time_limit_s` may be inf. `restarts` is
    None unless it was asked for.
    """

    job_id: str
    raw_id: str
    state: State
    reason: Reason
    nodes: str | None
    submit: float | None
    start: float | None
    end: float | None
    time_limit_s: float | None
    partition: str
    qos: str
    account: str
    priority: int | None
    dependency: str | None
    name: str
    restarts: int | None = None


def queue(
    job_ids: Iterable[str] | None = None, user: str | None = None, *, restarts: bool = False
) -> dict[str, QueueEntry]:
    """The jobs that slurmctld lists, ended ones that it has not forgotten included.

    Keys are the ids as squeue prints them (`123`, `123_4`, `123+0`) and, for a task of an array
    that was asked for by its plain number, that number. A job that is not listed is absent.
    Without ids: all jobs of `user`, or of everybody. Raises NotHeard when squeue fails.
    """
    wanted = None if job_ids is None else checked(job_ids)
    entries: dict[str, QueueEntry] = {}
    for selection in _selections(wanted, user):
        found = _entries(_squeue("-o", SEPARATOR.join(_FIELDS), selection))
        entries.update((entry.job_id, entry) for entry in found)
        entries.update(_by_number(found, wanted or ()))
        if restarts and entries:
            counts = _restart_counts(_squeue("-O", "JobArrayID:64,RestartCnt:16", selection))
            entries = {k: replace(e, restarts=counts.get(e.job_id)) for k, e in entries.items()}
    return entries


def _selections(wanted: tuple[str, ...] | None, user: str | None) -> list[tuple[str, ...]]:
    by_user = () if user is None else ("-u", user)
    if wanted is None:
        return [by_user]
    return [("-j", ",".join(batch), *by_user) for batch in batches(wanted)]


def _squeue(option: str, form: str, selection: tuple[str, ...]) -> str:
    said = run("squeue", "-h", "-r", "-t", "all", *selection, option, form)
    if said.exit_code == 0:
        return said.out
    if _knows_none(said, selection):
        return ""
    raise failed(said)


def _knows_none(said: Said, selection: tuple[str, ...]) -> bool:
    """squeue fails when the only job that was asked for is not known: that is an answer."""
    return "-j" in selection and UNKNOWN_JOB in said.err


def _entries(out: str) -> list[QueueEntry]:
    entries: list[QueueEntry] = []
    for line in out.split("\n"):
        values = line.split(SEPARATOR)
        if len(values) == len(_FIELDS):
            entries.extend(_entry(job_id, values) for job_id in expand(values[0]))
    return entries


def _entry(job_id: str, values: list[str]) -> QueueEntry:
    _, raw, state, reason, nodes, submit, start, end, limit, *rest = (v.strip() for v in values)
    partition, qos, account, priority, dependency, name = rest
    return QueueEntry(
        job_id=job_id,
        raw_id=raw,
        state=parse_state(state),
        reason=parse_reason(reason),
        nodes=nodes or None,
        submit=parse_time(submit),
        start=parse_time(start),
        end=parse_time(end),
        time_limit_s=parse_duration(limit),
        partition=partition,
        qos=qos,
        account=account,
        priority=parse_count(priority),
        dependency=None if dependency in ("", "(null)") else dependency,
        name=name,
    )


def _by_number(found: list[QueueEntry], wanted: tuple[str, ...]) -> dict[str, QueueEntry]:
    """Tasks of arrays that were asked for by their plain number.

    Tasks that wait share the number of the array, so a number that several have names none.
    """
    counts = Counter(entry.raw_id for entry in found)
    return {e.raw_id: e for e in found if e.raw_id in wanted and counts[e.raw_id] == 1}


def _restart_counts(out: str) -> dict[str, int]:
    counts = {}
    for line in out.splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isdigit():
            counts.update(dict.fromkeys(expand(words[0]), int(words[1])))
    return counts


def ping() -> bool:
    """Does a slurmctld answer? Raises NotHeard when scontrol itself fails."""
    return " is UP" in ask("scontrol", "ping")
