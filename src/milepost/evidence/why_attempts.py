"""The attempts of a shard or a job: what the runner recorded joined with what Slurm did.

A runner's attempt and an execution of a Slurm job are the same when the job id is and the attempt
began while that execution ran. Executions without a runner's record (killed before it began, or a
job that is no shard) stand beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.clock import epoch
from milepost.durable import read_json
from milepost.errors import DataError, SchedulerError
from milepost.evidence.classify import diagnose
from milepost.model import Action, FailureClass, Finding
from milepost.slurm.exitcode import OOM_SIGNAL, ExitCode
from milepost.slurm.exitwords import explain_exit
from milepost.slurm.units import parse_count, parse_size

if TYPE_CHECKING:
    from milepost.paths import ShardPaths
    from milepost.slurm.queue import JobDetails
    from milepost.slurm.records import AttemptRecord

SLACK_S = 5.0
"""Clocks of hosts may differ by this much."""
SHORT_S = 2.0
LOG_COUNT = 20
_PLAIN_STOPS = ("done", "failed", "error")


@dataclass(frozen=True, slots=True)
class Recorded:
    """An attempt as its runner recorded it in attempts/<n>.json."""

    number: int
    host: str | None
    job_id: str | None
    started: str | None
    ended: str | None
    exit_code: int | None
    stop: str | None
    finding: Finding | None
    cpu_s: float | None
    max_rss_bytes: int | None
    restored: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class AttemptStory:
    """One attempt in all that is known of it; times in seconds since the epoch.

    `number` is the runner's, None where no runner began. `state` and `exit_text` are the
    scheduler's, `exit_words` says what the code means. `cpus` and `asked_bytes` are what the job
    asked for; `cpu_s` was used within `cpu_wall_s`, the wall time of whoever measured it (the job,
    or the runner in it). `finding` is None while it runs and when it ended well.
    """

    number: int | None
    job_id: str | None
    where: str | None
    started: float | None
    ended: float | None
    state: str | None = None
    exit_text: str | None = None
    exit_words: str | None = None
    stop: str | None = None
    max_rss_bytes: int | None = None
    asked_bytes: int | None = None
    cpu_s: float | None = None
    cpu_wall_s: float | None = None
    cpus: int | None = None
    finding: Finding | None = None
    cause: str | None = None
    log: Path | None = None
    is_open: bool = False

    @property
    def wall_s(self) -> float | None:
        if self.started is None or self.ended is None:
            return None
        return max(0.0, self.ended - self.started)


def read_recorded(path: Path) -> Recorded:
    """An attempt's record. Raises DataError when it is none."""
    value = read_json(path)
    try:
        finding = value.get("finding")
        for name in ("started", "ended"):
            if value.get(name) is not None:
                epoch(value[name])
        job = value.get("slurm_job_id")
        return Recorded(
            number=int(path.stem),
            host=value.get("host"),
            job_id=None if job is None else str(job),
            started=value.get("started"),
            ended=value.get("ended"),
            exit_code=value.get("exit_code"),
            stop=value.get("stop"),
            finding=None if finding is None else Finding.from_json(finding),
            cpu_s=value.get("cpu_s"),
            max_rss_bytes=value.get("max_rss_bytes"),
            restored=value.get("restored"),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"is not an attempt record ({error!r})", where=path) from error


def join_attempts(
    recorded: Sequence[Recorded],
    records: Sequence[AttemptRecord],
    details: JobDetails | None,
    own: ShardPaths | None,
    held: int | None = None,
) -> list[AttemptStory]:
    """Every attempt, oldest first. `own` are the paths of the shard, None for a plain job.

    `held` is the attempt that has the lease and is not known to be dead.

    `details` of a job that has ended stand in for an accounting that lags or is away.
    """
    left = list(records)
    stories = []
    for one in recorded:
        match = next((r for r in reversed(left) if _is_same(one, r)), None)
        if match is not None:
            left.remove(match)
        story = _of_runner(one, match, details, own)
        stories.append(replace(story, is_open=story.ended is None and one.number == held))
    stories += [_of_slurm(r, details, own) for r in left if not _is_waiting(r)]
    if details is not None and _is_missing(details, records, stories):
        stories.append(_of_details(details))
    ordered = sorted(stories, key=lambda s: (s.started or s.ended or 0.0, s.number or 0))
    return [_judged(story) for story in ordered]


def _is_same(one: Recorded, record: AttemptRecord) -> bool:
    if one.job_id not in (record.job_id, record.raw_id) or record.start is None or not one.started:
        return False
    began = epoch(one.started)
    is_before_end = record.end is None or began <= record.end + SLACK_S
    return record.start - SLACK_S <= began and is_before_end


def _is_waiting(record: AttemptRecord) -> bool:
    return record.state.is_waiting and not record.has_run


def _is_missing(
    details: JobDetails, records: Sequence[AttemptRecord], stories: Sequence[AttemptStory]
) -> bool:
    """Has the job's present execution ended or begun without the accounting's knowledge?"""
    if details.state.is_waiting or details.start is None:
        return False
    known = [r.start for r in records if r.start is not None]
    known += [s.started for s in stories if s.job_id == details.job_id and s.started is not None]
    return all(abs(start - details.start) > SLACK_S for start in known)


def _of_runner(
    one: Recorded,
    record: AttemptRecord | None,
    details: JobDetails | None,
    own: ShardPaths | None,
) -> AttemptStory:
    started = None if one.started is None else epoch(one.started)
    ended = None if one.ended is None else epoch(one.ended)
    base = AttemptStory(
        number=one.number,
        job_id=one.job_id,
        where=one.host,
        started=started,
        ended=ended,
        exit_text=None if one.exit_code is None else str(one.exit_code),
        exit_words=None
        if one.exit_code is None
        else explain_exit(ExitCode(one.exit_code, 0), is_shard=True),
        stop=one.stop,
        max_rss_bytes=one.max_rss_bytes,
        cpu_s=one.cpu_s,
        cpu_wall_s=None if started is None or ended is None else ended - started,
        finding=one.finding,
        log=None if own is None else _newest_log(own, one.number),
    )
    return base if record is None else _with_record(base, record, details, is_shard=True)


def _of_slurm(
    record: AttemptRecord, details: JobDetails | None, own: ShardPaths | None
) -> AttemptStory:
    base = AttemptStory(None, record.job_id, record.nodes, record.start, record.end)
    base = replace(base, log=_log_of(details), is_open=not record.state.is_terminal)
    return _with_record(base, record, details, is_shard=own is not None)


def _with_record(
    base: AttemptStory, record: AttemptRecord, details: JobDetails | None, *, is_shard: bool
) -> AttemptStory:
    is_ended = record.end is not None
    code = record.exit_code if is_ended else None
    words = None if code is None else _words(code, record, details, is_shard)
    if str(code) == "0:0" and not record.job_state.is_success:
        words = None  # Slurm writes 0:0 for a time limit, a cancel, a requeue: nobody exited
    is_measured = record.cpu_s is not None and is_ended
    # A record that is not whole yet has `16?` for the memory and 0 CPUs.
    asked = _given(details) if _is_present(record, details) else (None, None)
    return replace(
        base,
        where=record.nodes or base.where,
        ended=record.end if base.ended is None else base.ended,
        state=record.state.raw if record.state == record.job_state else str(record.state),
        exit_text=base.exit_text if code is None else str(code),
        exit_words=base.exit_words if words is None else words,
        max_rss_bytes=max(filter(None, (base.max_rss_bytes, record.max_rss_bytes)), default=None),
        asked_bytes=record.req_mem_bytes or asked[0],
        cpu_s=record.cpu_s if is_measured else base.cpu_s,
        cpu_wall_s=record.elapsed_s if is_measured else base.cpu_wall_s,
        cpus=record.cpus or asked[1],
        is_open=not is_ended and not record.state.is_terminal,
    )


def _words(
    code: ExitCode, record: AttemptRecord, details: JobDetails | None, is_shard: bool
) -> str:
    from milepost.slurm.version import slurm_version

    try:
        version = slurm_version()
    except SchedulerError:
        version = None  # then nothing is guessed from it
    exact = record.derived_exit_code
    if details is not None and _is_present(record, details):
        exact = details.exit_code
    is_short = record.elapsed_s is not None and record.elapsed_s <= SHORT_S
    words = explain_exit(code, version=version, exact=exact, is_short=is_short, is_shard=is_shard)
    oom = next((s.step for s in record.steps if _is_out_of_memory(s.exit_code)), None)
    if oom is None or code.signal == OOM_SIGNAL:
        return words
    return f"{words}; but its step {oom} was killed for memory (0:{OOM_SIGNAL})"


def _is_out_of_memory(code: ExitCode | None) -> bool:
    return code is not None and code.signal == OOM_SIGNAL


def _of_details(details: JobDetails) -> AttemptStory:
    """The present execution by scontrol alone."""
    ended = details.end if details.state.is_terminal else None
    code = details.exit_code if details.state.is_terminal else None
    wall_s = None if ended is None or details.start is None else ended - details.start
    asked_bytes, cpus = _given(details)
    return AttemptStory(
        number=None,
        job_id=details.job_id,
        where=details.nodes,
        started=details.start,
        ended=ended,
        state=str(details.state),
        exit_text=None if code is None else str(code),
        exit_words=None
        if code is None
        else explain_exit(code, is_short=wall_s is not None and wall_s <= SHORT_S),
        asked_bytes=asked_bytes,
        cpus=cpus,
        log=_log_of(details),
        is_open=ended is None,
    )


def _is_present(record: AttemptRecord, details: JobDetails | None) -> bool:
    """Is it this execution that scontrol shows?"""
    return details is not None and details.start == record.start


def _given(details: JobDetails | None) -> tuple[int | None, int | None]:
    """Bytes of memory and CPUs that the job was given, by `TRES=cpu=1,mem=200M,node=1`."""
    fields = {} if details is None else details.fields
    text = fields.get("AllocTRES") or fields.get("TRES") or ""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    return parse_size(parts.get("mem", ""), unit="M"), parse_count(parts.get("cpu", ""))


def _log_of(details: JobDetails | None) -> Path | None:
    path = None if details is None else details.fields.get("StdOut")
    return Path(path) if path and Path(path).is_file() else None


def _newest_log(own: ShardPaths, number: int) -> Path | None:
    """The attempt's log; of a batch shard, one of several slots, the one written last."""
    found = [own.log(number), *sorted(own.attempts.glob(f"{number}.*.log"))[:LOG_COUNT]]
    logs = [path for path in found if path.is_file() and path.stat().st_size]
    return max(logs, key=lambda path: path.stat().st_mtime, default=None)


def _judged(story: AttemptStory) -> AttemptStory:
    """With class and next action, unless it still runs or ended well."""
    if story.is_open or story.stop == "done":
        return story
    if story.stop is not None and story.stop not in _PLAIN_STOPS:
        return _stopped(story)
    finding, why = diagnose(story.log, state=story.state, exit_code=story.exit_text)
    if finding.subclass == "unknown_state" and story.number is not None:
        return _killed(story)
    if finding.failure_class is FailureClass.NONE and story.finding is None:
        return story
    if story.finding is not None and story.finding.confidence >= finding.confidence:
        return story
    return replace(story, finding=finding, cause=why)


def _stopped(story: AttemptStory) -> AttemptStory:
    """Interrupted at a durable point, which is no failure."""
    subclass = "time_limit" if story.stop == "walltime" else "cancelled"
    if "PREEMPTED" in (story.state or ""):
        subclass = "preempted"
    action = Action.RESUME_FROM_CHECKPOINT
    finding = Finding(FailureClass.SCHEDULER, subclass, action, (), 0.95)
    why = f"stopped by {story.stop} at a durable point; the next attempt goes on from there"
    return replace(story, finding=finding, cause=why)


def _killed(story: AttemptStory) -> AttemptStory:
    """Its runner never said how it ended, and nobody else does."""
    action = Action.RESUME_FROM_CHECKPOINT
    finding = Finding(FailureClass.SCHEDULER, "unknown_state", action, (), 0.3)
    why = "ended without a word: it was killed, or its node went away; the journal is kept"
    return replace(story, finding=finding, cause=why)
