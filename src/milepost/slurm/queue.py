"""What slurmctld knows of jobs: the queue by `squeue`, one job in full by `scontrol show job`.

It forgets an ended job after MinJobAge (five minutes on most sites).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from milepost.slurm.command import SEPARATOR, Said, ask, failed, run
from milepost.slurm.exitcode import ExitCode, parse_exit_code
from milepost.slurm.jobids import batches, checked, expand
from milepost.slurm.reasons import Reason, parse_reason
from milepost.slurm.states import State, parse_state
from milepost.slurm.units import parse_count, parse_duration, parse_time

UNKNOWN_JOB = "Invalid job id specified"
_FIELDS = ("%i", "%A", "%T", "%r", "%N", "%V", "%S", "%e", "%l", "%P", "%q", "%a", "%Q", "%E", "%j")
_KEY = re.compile(r"(?:^| )([A-Z][A-Za-z]*(?:[/:][A-Za-z][A-Za-z/:]*)?)=")
_NAME = re.compile(r" JobName=(.*?)(?= UserId=\S*\(\d+\) GroupId=)", re.DOTALL)
_FREE_TEXT = frozenset(
    ["Comment", "AdminComment", "SystemComment", "Extra", "Command", "SubmitLine", "WorkDir"]
)
_AFTER_FREE_TEXT = _FREE_TEXT | frozenset(
    "StdErr StdIn StdOut Power TresPerJob TresPerNode TresPerSocket TresPerTask TresBind TresFreq "
    "MailUser MailType NtasksPerTRES CpusPerTres MemPerTres BurstBuffer BatchFeatures".split()
)


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


@dataclass(frozen=True, slots=True)
class JobDetails:
    """A job as `scontrol show job` prints it; `fields` has everything, as text."""

    job_id: str
    state: State
    reason: Reason
    exit_code: ExitCode | None
    restarts: int | None
    is_batch: bool
    can_requeue: bool
    submit: float | None
    start: float | None
    end: float | None
    time_limit_s: float | None
    preempt_time: float | None
    nodes: str | None
    partition: str
    work_dir: str | None
    comment: str | None
    fields: Mapping[str, str] = field(default_factory=dict, repr=False)


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


def job_details(job_id: str) -> JobDetails | None:
    """One job in full, or None when slurmctld does not know it (any more).

    Raises NotHeard when scontrol fails for another reason.
    """
    (job,) = checked([job_id])
    said = run("scontrol", "show", "job", "-o", job)
    if said.exit_code != 0:
        if UNKNOWN_JOB in said.err + said.out:
            return None
        raise failed(said)
    lines = [line for line in said.out.split("\nJobId=") if line.strip()]
    records = [parse_fields(line if i == 0 else f"JobId={line}") for i, line in enumerate(lines)]
    if not records:
        return None
    exact = [r for r in records if job in (r.get("JobId"), _array_id(r))]
    return _details((exact or records)[0])


def parse_fields(line: str) -> dict[str, str]:
    """`Key=value` pairs of a line of `scontrol show job -o`; values may hold blanks and `=`.

    A job name or a comment can hold what looks like a pair. The name ends where Slurm's own user
    id follows; after it, the first of two equal keys counts, since comments come last.
    """
    found: dict[str, str] = {}
    named = _NAME.search(line)
    if named is not None:
        found["JobName"] = named[1]
        line = line[: named.start()] + line[named.end(1) :]
    key, start = "", 0
    for match in _KEY.finditer(line):
        if key in _FREE_TEXT and match[1] not in _AFTER_FREE_TEXT:
            continue
        found.setdefault(key, line[start : match.start()].strip())
        key, start = match[1], match.end()
    found.setdefault(key, line[start:].strip())
    found.pop("", None)
    return found


def _array_id(record: Mapping[str, str]) -> str:
    return f"{record.get('ArrayJobId', '')}_{record.get('ArrayTaskId', '')}"


def _details(fields: Mapping[str, str]) -> JobDetails:
    def text(key: str) -> str | None:
        value = fields.get(key, "")
        return value if value not in ("", "(null)", "N/A") else None

    return JobDetails(
        job_id=fields["JobId"],
        state=parse_state(fields.get("JobState", "")),
        reason=parse_reason(fields.get("Reason", "")),
        exit_code=parse_exit_code(fields.get("ExitCode", "")),
        restarts=parse_count(fields.get("Restarts", "")),
        is_batch=fields.get("BatchFlag", "0") != "0",
        can_requeue=fields.get("Requeue") == "1",
        submit=parse_time(fields.get("SubmitTime", "")),
        start=parse_time(fields.get("StartTime", "")),
        end=parse_time(fields.get("EndTime", "")),
        time_limit_s=parse_duration(fields.get("TimeLimit", "")),
        preempt_time=parse_time(fields.get("PreemptTime", "")),
        nodes=text("NodeList"),
        partition=fields.get("Partition", ""),
        work_dir=text("WorkDir"),
        comment=text("Comment"),
        fields=fields,
    )


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
