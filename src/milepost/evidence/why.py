"""Why a job or a shard stands where it stands: every witness is asked, and silence is said.

Nothing is judged here beyond the class of a failure; `why_text` puts it into words. None is what
nobody could tell; the reason why stands in `silences`.
"""

from __future__ import annotations

import getpass
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from milepost.clock import epoch
from milepost.durable import read_json
from milepost.errors import ConfigError, DataError, SchedulerError
from milepost.evidence.why_attempts import AttemptStory, Recorded, join_attempts, read_recorded
from milepost.journal import read_journal
from milepost.lease import STALE_S, Holder, read_holder
from milepost.paths import RunPaths
from milepost.shardtable import shard_names

if TYPE_CHECKING:
    from milepost.journal import JournalState
    from milepost.slurm.outlook import Forecast, Priority, Share
    from milepost.slurm.queue import JobDetails
    from milepost.slurm.reasons import Reason
    from milepost.slurm.records import AttemptRecord

T = TypeVar("T")
_ARGUMENTS = re.compile(r"`(\w+) [^`]*`")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pending job: `reason` has its fields filled in."""

    reason: Reason
    since: float | None
    priority: Priority | None
    share: Share | None
    forecast: Forecast | None


@dataclass(frozen=True, slots=True)
class Running:
    """A running job or attempt; `limit_s` is its walltime (inf: none)."""

    where: str | None
    since: float | None
    limit_s: float | None

    def left_s(self, now: float) -> float | None:
        if self.since is None or self.limit_s is None:
            return None
        return self.since + self.limit_s - now


@dataclass(frozen=True, slots=True)
class Progress:
    """The last signs of work in a shard's journal."""

    done: int
    failed: int
    tasks: int | None
    last_row: str | None
    """What the last row says, with its time."""
    checkpoint: str | None


@dataclass(frozen=True, slots=True)
class Story:
    """Everything that is known about a job, a shard, or both.

    `state` is Slurm's word now, None when it was not heard or there is no job. `holder` describes
    whoever has the lease; `holder_alive` is None when that cannot be told.
    """

    now: float
    job_id: str | None = None
    run: str | None = None
    shard: str | None = None
    state: str | None = None
    about: dict[str, str] = field(default_factory=dict)
    waiting: Waiting | None = None
    running: Running | None = None
    progress: Progress | None = None
    holder: str | None = None
    holder_alive: bool | None = None
    is_complete: bool = False
    attempts: tuple[AttemptStory, ...] = ()
    silences: tuple[str, ...] = ()


class Listener:
    """Asks witnesses, and remembers those that could not be heard."""

    def __init__(self) -> None:
        self.silences: list[str] = []

    def hear(self, who: str, ask: Callable[[], T]) -> T | None:
        """What `ask` returns; None, and a line in `silences`, when it cannot be heard."""
        try:
            return ask()
        except (SchedulerError, DataError, OSError, ValueError) as error:
            what = error.what if isinstance(error, SchedulerError | DataError) else str(error)
            brief = _ARGUMENTS.sub(r"`\1`", what)  # the options would hide what it said
            self.silences.append(f"{who} not heard: {brief}")
            return None


def why_job(job_id: str, root: Path) -> Story:
    """Everything about a Slurm job; the shard that it works on, if any, below `root`.

    Raises SchedulerError for what is no job id. A silent witness is no error.
    """
    from milepost.slurm.jobids import checked

    (job_id,) = checked([job_id])
    listener = Listener()
    details = _details(job_id, listener)
    shard = _shard_of(job_id, details, root)
    recorded = _recorded(RunPaths(shard[0], root), shard[1], listener) if shard else []
    return _story(listener, root, job_id, details, shard, recorded)


def why_shard(paths: RunPaths, name: str) -> Story:
    """Everything about a shard and the job that works on it or waits to.

    Raises ConfigError when there is no such run or shard.
    """
    if name not in shard_names(paths.frozen_shards) and not paths.shard(name).live.is_dir():
        raise ConfigError(
            f"run {paths.run!r} has no shard {name!r}",
            where=paths.frozen_shards,
            fix="see its first column, or `milepost status`, for the names",
        )
    listener = Listener()
    recorded = _recorded(paths, name, listener)
    job_id = _job_of(paths, name, recorded, listener)
    details = None if job_id is None else _details(job_id, listener)
    return _story(listener, paths.root, job_id, details, (paths.run, name), recorded)


def _story(
    listener: Listener,
    root: Path,
    job_id: str | None,
    details: JobDetails | None,
    shard: tuple[str, str] | None,
    recorded: list[Recorded],
) -> Story:
    own = None if shard is None else RunPaths(shard[0], root).shard(shard[1])
    jobs = _jobs(job_id, recorded)
    records = _history(jobs, details, recorded, listener) if jobs else []
    journal = None if own is None else listener.hear("journal", lambda: read_journal(own.journal))
    holder = None if own is None else listener.hear("lease", lambda: read_holder(own.lease))
    alive = None if holder is None else listener.hear("lease", lambda: _is_alive(holder))
    held = None if holder is None or alive is False else holder.attempt
    attempts = join_attempts(recorded, records, details, own, held)
    if details is not None and details.state.is_waiting:
        waiting, running = _waiting(details, listener), None
    else:
        waiting, running = None, _running(details, attempts, alive is True)
    return Story(
        now=time.time(),
        job_id=job_id,
        run=None if shard is None else shard[0],
        shard=None if shard is None else shard[1],
        state=_state(details, records),
        about={} if details is None else _about(details),
        waiting=waiting,
        running=running,
        progress=_progress(journal, shard, root),
        holder=None if holder is None else holder.describe(),
        holder_alive=alive,
        is_complete=own is not None and own.marker.is_file(),
        attempts=tuple(attempts),
        silences=tuple(listener.silences),
    )


def _details(job_id: str, listener: Listener) -> JobDetails | None:
    from milepost.slurm.queue import job_details

    return listener.hear("scheduler (slurmctld)", lambda: job_details(job_id))


def _history(
    jobs: list[str], details: JobDetails | None, recorded: list[Recorded], listener: Listener
) -> list[AttemptRecord]:
    """The accounting's attempts of these jobs, in order of time."""
    from milepost.slurm.history import history

    known = [epoch(r.started) for r in recorded if r.started]
    if details is not None and details.submit is not None:
        known.append(details.submit)
    # Waiting in the queue came before the first start: so far back that no job is older.
    since = min(known) - 400 * 86_400 if known else 0.0
    found = listener.hear("accounting (sacct)", lambda: history(jobs, since))
    if found is None:
        return []
    records = {id(r): r for job in jobs for r in found.get(job, [])}.values()
    if not records and details is None:
        listener.silences.append(
            f"accounting (sacct) has no record of {', '.join(jobs)}; a job that ended just now, or "
            "long ago, may be missing there"
        )
    return sorted(records, key=lambda r: (r.submit or 0.0, r.start or 0.0))


def _is_alive(holder: Holder) -> bool | None:
    """As reconcile judges it: without a job behind it, an old heartbeat elsewhere means dead."""
    alive = holder.is_alive()
    if alive is None and holder.slurm_job_id is None and holder.age_s() > 4 * STALE_S:
        return False
    return alive


def _jobs(job_id: str | None, recorded: list[Recorded]) -> list[str]:
    jobs = [r.job_id for r in recorded if r.job_id]
    return list(dict.fromkeys([*jobs, *([job_id] if job_id else [])]))


def _recorded(paths: RunPaths, name: str, listener: Listener) -> list[Recorded]:
    found = []
    for path in sorted(paths.shard(name).attempts.glob("*.json")):
        if path.stem.isdigit():
            one = listener.hear(str(path), lambda path=path: read_recorded(path))  # type: ignore[misc]
            found += [] if one is None else [one]
    return sorted(found, key=lambda r: r.number)


def _job_of(paths: RunPaths, name: str, recorded: list[Recorded], listener: Listener) -> str | None:
    """The job in the queue for this shard, else the one of its last attempt."""
    from milepost.slurm.outlook import jobs_of_shard

    last = next((r.job_id for r in reversed(recorded) if r.job_id), None)
    silent = Listener() if last is None else listener  # a run without Slurm misses no queue
    user = getpass.getuser()
    queued = silent.hear("queue (squeue)", lambda: jobs_of_shard(paths.root, paths.run, name, user))
    return queued[-1] if queued else last


def _shard_of(job_id: str, details: JobDetails | None, root: Path) -> tuple[str, str] | None:
    """The shard that a job was submitted for, by its comment, else by the attempts' records."""
    from milepost.slurm.outlook import shard_of_comment

    found = shard_of_comment(None if details is None else details.comment)
    if found is not None and RunPaths(found[0], root).work.is_dir():
        return found
    for path in root.glob("work/*/shards/*/attempts/*.json"):
        try:
            if str(read_json(path).get("slurm_job_id")) == job_id:
                return path.parts[-5], path.parts[-3]
        except (DataError, OSError, AttributeError):
            continue  # a record that cannot be read names no job; `why SHARD` tells of it
    return None


def _state(details: JobDetails | None, records: list[AttemptRecord]) -> str | None:
    if details is not None:
        return str(details.state)
    return str(records[-1].state) if records else None


def _about(details: JobDetails) -> dict[str, str]:
    fields = details.fields
    names = {"name": "JobName", "partition": "Partition", "account": "Account", "QOS": "QOS"}
    return {k: fields[v] for k, v in names.items() if fields.get(v) not in (None, "", "(null)")}


def _waiting(details: JobDetails, listener: Listener) -> Waiting:
    from milepost.slurm import outlook

    job, fields = details.job_id, details.fields
    user, account = outlook.user_of(fields), fields.get("Account")
    limit = listener.hear("limit", lambda: outlook.limit_of(details.reason, fields))
    reason = details.reason.filled(_values(details, user, limit))
    if reason.name.startswith("Dependency"):
        reason = replace(reason, detail=fields.get("Dependency"))
    return Waiting(
        reason=reason,
        since=details.submit,
        priority=listener.hear("priority (sprio)", lambda: outlook.priority(job)),
        share=listener.hear("fair share (sshare)", lambda: outlook.share(user, account))
        if user and account and account != "(null)"
        else None,
        forecast=listener.hear("forecast (squeue --start)", lambda: outlook.forecast(job)),
    )


def _values(details: JobDetails, user: str | None, limit: str | None) -> dict[str, str | None]:
    from milepost.slurm.reasons import nodes_of

    fields = {k: v for k, v in details.fields.items() if v != "(null)"}
    return {
        "job": details.job_id,
        "user": user,
        "account": fields.get("Account"),
        "partition": fields.get("Partition"),
        "qos": fields.get("QOS"),
        "reservation": fields.get("Reservation"),
        "nodes": nodes_of(details.reason),
        "limit": limit,
    }


def _running(
    details: JobDetails | None, attempts: list[AttemptStory], is_held: bool
) -> Running | None:
    if details is not None and details.state.is_busy:
        return Running(details.nodes, details.start, details.time_limit_s)
    last = attempts[-1] if attempts else None
    if is_held and last is not None and last.is_open and (details is None or last.job_id is None):
        return Running(last.where, last.started, None)
    return None


def _progress(
    journal: JournalState | None, shard: tuple[str, str] | None, root: Path
) -> Progress | None:
    if journal is None or shard is None or not journal.rows:
        return None
    rows = [*journal.done.values(), *journal.failed.values(), *journal.checkpoints]
    last = max([*rows, *journal.attempts], key=lambda row: row.time, default=None)
    point = journal.checkpoints[-1] if journal.checkpoints else None
    return Progress(
        done=len(journal.done),
        failed=len(journal.failed),
        tasks=_task_count(RunPaths(shard[0], root), shard[1]),
        last_row=None if last is None else f"{last.event} {last.name} {last.status} {last.time}",
        checkpoint=None if point is None else _checkpoint(point.name, point.time, point.data),
    )


def _checkpoint(name: str, when: str, data: dict[str, Any]) -> str:
    step = "" if data.get("step") is None else f" at step {data['step']}"
    return f"{name}{step} {when}"


def _task_count(paths: RunPaths, name: str) -> int | None:
    try:
        with paths.frozen_shards.open(encoding="utf-8") as stream:
            return sum(line.startswith(f"{name},") for line in stream)
    except OSError:
        return None
