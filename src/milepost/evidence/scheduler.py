"""The second witness: Slurm's word about the jobs of a run, the lease where there is no Slurm.

Slurm is asked once for all shards. Its last word about a finished job is written down, because
slurmctld forgets within minutes and some clusters keep no accounting; so are the deadlines until
which a job may be missing from the accounting.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from milepost.clock import epoch, utc_now
from milepost.durable import write_json
from milepost.errors import SchedulerError
from milepost.evidence.cancelled import cancelled_job, note_cancelled
from milepost.evidence.states import Scheduler
from milepost.evidence.types import QueueWait, RunEvidence, ShardEvidence
from milepost.evidence.unsaid import execution_of, told
from milepost.slurm.jobs import FolderJob, folder_jobs, may_have_jobs
from milepost.slurm.witness import Answer, Heard, Word, judge, listen

HEARD = "scheduler.json"
_ENDS = frozenset(
    [
        Word.COMPLETED,
        Word.FAILED,
        Word.CANCELLED,
        Word.TIMEOUT,
        Word.PREEMPTED,
        Word.NODE_FAIL,
        Word.OUT_OF_MEMORY,
    ]
)


@dataclass(slots=True)
class SlurmWitness:
    """Asked shard by shard after `listen` asked Slurm once. `said` explains each answer.

    `memory` maps a shard to `{job, word, deadline, time, waits}`: what was heard before. `waiting` are
    jobs of shards that have not ended, `cancelled` the ids of those that were before they started.
    """

    heard: Heard
    waiting: Mapping[str, FolderJob]
    fallback: Callable[[ShardEvidence], Scheduler]
    memory: dict[str, dict[str, Any]]
    cancelled: Mapping[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def __call__(self, shard: ShardEvidence) -> Scheduler:
        jobs = job_ids(shard)
        queued = self.waiting.get(shard.name)
        if queued is not None and queued.job_id not in jobs:
            jobs = [*jobs, queued.job_id]
            if queued.state.is_waiting:
                self.said[shard.name] = f"job {queued.job_id} waits: {queued.reason.name}"
                return Scheduler.PENDING
        if queued is None and shard.name in self.cancelled:
            job_id = self.cancelled[shard.name]
            self.said[shard.name] = f"job {job_id} was cancelled before it started"
            return Scheduler.CANCELLED
        if not jobs:
            return self.fallback(shard)
        before = self.memory.get(shard.name, {})
        is_same = before.get("job") == jobs[-1]
        answer = judge(
            self.heard,
            jobs,
            last_sign=_last_sign(shard),
            deadline=before.get("deadline") if is_same else None,
        )
        waits = self._waits(jobs, before)
        word = self._settle(shard, answer, before if is_same else {})
        if waits:
            nothing = {"job": None, "word": None, "deadline": None, "time": utc_now()}
            self.memory.setdefault(shard.name, nothing)["waits"] = [asdict(w) for w in waits]
        self.said[shard.name] = answer.said
        return Scheduler(word.value)

    def waits(self, shard: str) -> tuple[QueueWait, ...]:
        """How long the executions of a shard's jobs waited, oldest first, as far as was heard."""
        return tuple(QueueWait(**w) for w in self.memory.get(shard, {}).get("waits", ()))

    def _waits(self, jobs: Iterable[str], before: Mapping[str, Any]) -> list[QueueWait]:
        """What was heard before, and what the accounting says now about these jobs."""
        known = [QueueWait(**w) for w in before.get("waits", ())]
        records = [r for job in jobs for r in (self.heard.history or {}).get(job, ())]
        said = [
            QueueWait(r.job_id, r.submit, r.eligible, r.start)
            for r in records
            if r.submit is not None and r.start is not None
        ]
        found = {(w.job_id, w.start_s): w for w in (*known, *said)}
        return sorted(found.values(), key=lambda w: w.start_s)

    def finding(self, shard: ShardEvidence) -> Mapping[str, Any] | None:
        """Why the last attempt ended, by Slurm's word, where it left none of its own."""
        last = shard.attempts[-1] if shard.attempts else None
        if last is None or last.slurm_job_id is None or last.started is None:
            return None
        if last.finding is not None or (last.ended is not None and last.stop != "signal TERM"):
            return None
        known = (self.heard.history or {}).get(last.slurm_job_id, ())
        record = execution_of(known, epoch(last.started))
        found: Mapping[str, Any] | None = None if record is None else told(record)["finding"]
        return found

    def stuck(self, shard: str) -> FolderJob | None:
        """The job of a shard that waits and will not start by itself; None without."""
        job = self.waiting.get(shard)
        will_not = job is not None and job.state.is_waiting and not job.reason.helps_waiting
        return job if will_not else None

    def _settle(self, shard: ShardEvidence, answer: Answer, before: Mapping[str, Any]) -> Word:
        """Remember an end; use a remembered one where Slurm has forgotten or cannot be heard."""
        word = answer.word
        if word in _ENDS or answer.deadline is not None:
            self.memory[shard.name] = {
                "job": answer.job_id,
                "word": word.value if word in _ENDS else None,
                "deadline": answer.deadline,
                "time": utc_now(),
            }
        elif word in (Word.NOT_LISTED, Word.NOT_HEARD) and before.get("word"):
            return Word(before["word"])
        elif word is Word.NOT_LISTED and not self.heard.has_accounting and _said_done(shard):
            # no accounting, and slurmctld forgot: there is no scheduler left to be a witness
            return Word.COMPLETED
        return word


def witness_of(
    run: RunEvidence, fallback: Callable[[ShardEvidence], Scheduler]
) -> Callable[[ShardEvidence], Scheduler]:
    """The witness for a run: Slurm where a job of it ever ran or waits, else `fallback`."""
    jobs = [job for shard in run.shards for job in job_ids(shard)]
    listed = _listed(run)
    waiting = {job.shard: job for job in listed if job.shard and not job.state.is_terminal}
    cancelled = _cancelled(run, listed)
    if not jobs and not waiting and not cancelled:
        return fallback
    since = min((_started(shard) for shard in run.shards if shard.attempts), default=0.0)
    return SlurmWitness(listen(jobs, since), waiting, fallback, _memory(run), cancelled)


def remember(run: RunEvidence, witness: object) -> None:
    """Write down what Slurm said, for the time when it has forgotten."""
    if isinstance(witness, SlurmWitness) and witness.memory:
        write_json(run.paths.work / HEARD, witness.memory)


def job_ids(shard: ShardEvidence) -> list[str]:
    """The Slurm jobs that worked on a shard, oldest first; empty when all of it was local.

    The last attempt decides: one that ran without Slurm has the lease as its witness.
    """
    if not shard.attempts or shard.attempts[-1].slurm_job_id is None:
        return []
    return [a.slurm_job_id for a in shard.attempts if a.slurm_job_id is not None]


def _listed(run: RunEvidence) -> list[FolderJob]:
    """Jobs of shards that Snakemake submitted for this run and that slurmctld remembers."""
    if not may_have_jobs(run.paths.root):
        return []
    try:
        jobs = folder_jobs(run.paths.root)
    except SchedulerError:
        return []
    return [job for job in jobs if job.run == run.paths.run and job.shard is not None]


def _cancelled(run: RunEvidence, listed: Iterable[FolderJob]) -> dict[str, str]:
    """Shards of which a job was cancelled and no attempt began afterwards, with that job."""
    for job in listed:
        if job.is_cancelled and job.shard is not None:
            note_cancelled(run.paths.shard(job.shard).live, job)
    found = {}
    for shard in run.shards:
        starts = [attempt.started for attempt in shard.attempts if attempt.started]
        job_id = cancelled_job(run.paths.shard(shard.name).live, starts)
        if job_id is not None and job_id not in job_ids(shard):
            found[shard.name] = job_id
    return found


def _memory(run: RunEvidence) -> dict[str, dict[str, Any]]:
    path: Path = run.paths.work / HEARD
    try:
        memory: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return memory
    except (FileNotFoundError, ValueError):
        return {}  # it is a memory only: without it the answer is UNKNOWN, never DONE


def _started(shard: ShardEvidence) -> float:
    started = shard.attempts[0].started
    return epoch(started) if started else 0.0


def _last_sign(shard: ShardEvidence) -> float | None:
    if shard.holder is not None:
        return epoch(shard.holder.heartbeat)
    ended = shard.attempts[-1].ended if shard.attempts else None
    return epoch(ended) if ended else None


def _said_done(shard: ShardEvidence) -> bool:
    return bool(shard.attempts) and shard.attempts[-1].exit_code == 0
