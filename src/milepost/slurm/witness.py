"""The scheduler as a witness: one word about a shard's job, out of queue and accounting.

`listen` asks once for many jobs; `judge` is pure. A query that failed, a job that nobody lists,
and a job that is listed as ended are three different answers. A job that left the queue may reach
the accounting minutes later, so a job that is in neither has a deadline, which the caller keeps.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from milepost.slurm.command import NotHeard
from milepost.slurm.history import NoAccounting, history
from milepost.slurm.queue import QueueEntry, queue
from milepost.slurm.records import AttemptRecord
from milepost.slurm.states import State

LAG_S = 300.0
"""How long after its last sign of life a job may be missing from the accounting."""
SETTLE_S = 15.0
"""How long a preempted job may look ended before Slurm has put it back into the queue."""
SAME_ATTEMPT_S = 60.0
"""A sign of life this long after a record's end belongs to a later attempt."""


class Word(StrEnum):
    """What the scheduler says; the words of evidence.states.Scheduler without `none`."""

    ALIVE = "alive"
    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    NODE_FAIL = "node_fail"
    OUT_OF_MEMORY = "out_of_memory"
    NOT_LISTED = "not_listed"
    NOT_HEARD = "not_heard"


_WORDS = {
    "COMPLETED": Word.COMPLETED,
    "FAILED": Word.FAILED,
    "CANCELLED": Word.CANCELLED,
    "TIMEOUT": Word.TIMEOUT,
    "PREEMPTED": Word.PREEMPTED,
    "NODE_FAIL": Word.NODE_FAIL,
    "OUT_OF_MEMORY": Word.OUT_OF_MEMORY,
    "DEADLINE": Word.FAILED,
    "BOOT_FAIL": Word.NODE_FAIL,
}
_MAY_GO_ON = frozenset(["PREEMPTED", "NODE_FAIL", "BOOT_FAIL"])
"""Ends after which Slurm itself may start the same job again."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What queue and accounting answered about some jobs at one time.

    `queue` or `history` is None when that query failed; `complaints` say why. `has_accounting` is
    False where the cluster keeps none.
    """

    at: float
    queue: Mapping[str, QueueEntry] | None
    history: Mapping[str, Sequence[AttemptRecord]] | None
    has_accounting: bool = True
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The word about a shard and what it rests on.

    `deadline` (seconds since the epoch) is set while accounting lag may explain the silence: keep
    it and pass it to the next `judge`. It is None for a query that failed: that has no end.
    """

    word: Word
    job_id: str | None
    said: str
    deadline: float | None = None
    attempts: tuple[AttemptRecord, ...] = field(default=())


def ask(
    job_ids: Sequence[str],
    since: float,
    *,
    last_sign: float | None = None,
    deadline: float | None = None,
) -> Answer:
    """Ask the scheduler about the jobs of one shard, oldest first. Never raises NotHeard."""
    return judge(listen(job_ids, since), job_ids, last_sign=last_sign, deadline=deadline)


def listen(job_ids: Iterable[str], since: float) -> Heard:
    """Ask queue and accounting once about all these jobs; a query that fails is noted.

    Jobs that the queue lists as alive are not looked up in the accounting.
    """
    wanted = tuple(dict.fromkeys(job_ids))
    if not wanted:
        return Heard(time.time(), {}, {})
    complaints: list[str] = []
    listed: Mapping[str, QueueEntry] | None = None
    records: Mapping[str, Sequence[AttemptRecord]] | None = None
    has_accounting = True
    try:
        listed = queue(wanted)
    except NotHeard as error:
        complaints.append(error.what)
    ended = [one for one in wanted if listed is None or not _is_alive(listed.get(one))]
    try:
        records = history(ended, since) if ended else {}
    except NoAccounting:
        records, has_accounting = {}, False
    except NotHeard as error:
        complaints.append(error.what)
    return Heard(time.time(), listed, records, has_accounting, tuple(complaints))


def judge(
    heard: Heard,
    job_ids: Sequence[str],
    *,
    last_sign: float | None = None,
    deadline: float | None = None,
) -> Answer:
    """The word about a shard whose attempts ran as these jobs, oldest first. Pure.

    The last job decides, unless an earlier one is still alive or waiting. `last_sign` is when the
    shard was last seen at work; `deadline` is that of the answer before, if it had one.
    """
    if not job_ids:
        return Answer(Word.NOT_LISTED, None, "no job id was recorded")
    unique = tuple(dict.fromkeys(job_ids))
    for word in (Word.ALIVE, Word.PENDING):
        for job_id in reversed(unique):
            entry = (heard.queue or {}).get(job_id)
            if _word_in_queue(entry, heard.at) is word:
                return _answer(heard, word, job_id, f"squeue lists it as {_state(entry)}")
    return _ended(heard, unique[-1], last_sign, deadline)


def _ended(heard: Heard, job_id: str, last_sign: float | None, deadline: float | None) -> Answer:
    entry = (heard.queue or {}).get(job_id)
    record = _latest(heard, job_id)
    if entry is not None:
        return _listed_end(heard, job_id, entry, record)
    if heard.history is None:
        return _answer(heard, Word.NOT_HEARD, job_id, "; ".join(heard.complaints), deadline)
    if record is not None and record.state.is_terminal and not _is_stale(record, last_sign):
        is_final = record.state.base not in _MAY_GO_ON
        if is_final or (heard.queue is not None and heard.at >= (record.end or 0.0) + LAG_S):
            return _answer(heard, _word(record.state), job_id, f"sacct says {record.state}")
    if heard.queue is None:
        return _answer(heard, Word.NOT_HEARD, job_id, "; ".join(heard.complaints), deadline)
    return _lagging(heard, job_id, record, last_sign, deadline)


def _listed_end(
    heard: Heard, job_id: str, entry: QueueEntry, record: AttemptRecord | None
) -> Answer:
    """squeue lists it as ended: the accounting of the same attempt may know better (its steps)."""
    if not entry.state.is_terminal:
        return _answer(heard, Word.NOT_HEARD, job_id, f"squeue says {entry.state}: not understood")
    if record is not None and record.state.is_terminal and _is_same(record, entry):
        return _answer(heard, _word(record.state), job_id, f"squeue and sacct say {record.state}")
    return _answer(
        heard,
        _word(entry.state),
        job_id,
        f"squeue says {entry.state}; its steps are not recorded yet",
    )


def _lagging(
    heard: Heard,
    job_id: str,
    record: AttemptRecord | None,
    last_sign: float | None,
    deadline: float | None,
) -> Answer:
    """Not in the queue, and no final record: that may be lag, until the deadline."""
    signs = [sign for sign in (last_sign, _last_moment(record)) if sign is not None]
    until = max(signs, default=heard.at) + LAG_S if deadline is None else deadline
    known = "no record" if record is None else f"only a record that says {record.state}"
    if heard.at < until:
        return _answer(
            heard, Word.NOT_HEARD, job_id, f"not in the queue, {known}: accounting may lag", until
        )
    if record is not None and record.state.is_terminal and not _is_stale(record, last_sign):
        return _answer(heard, _word(record.state), job_id, f"sacct says {record.state}")
    where = "sacct has" if heard.has_accounting else "this cluster keeps no accounting:"
    return _answer(heard, Word.NOT_LISTED, job_id, f"not in the queue; {where} {known}")


def _answer(
    heard: Heard, word: Word, job_id: str, said: str, deadline: float | None = None
) -> Answer:
    records = (heard.history or {}).get(job_id, ())
    return Answer(word, job_id, f"job {job_id}: {said}", deadline, tuple(records))


def _word_in_queue(entry: QueueEntry | None, at: float) -> Word | None:
    """Alive or pending; None for a job that is not listed, or listed as ended."""
    if entry is None:
        return None
    state = entry.state
    if state.is_busy:
        return Word.ALIVE
    if state.is_waiting:
        return Word.PENDING
    just_ended = entry.end is not None and at - entry.end < SETTLE_S
    return Word.PENDING if state.base in _MAY_GO_ON and just_ended else None


def _is_alive(entry: QueueEntry | None) -> bool:
    return entry is not None and (entry.state.is_busy or entry.state.is_waiting)


def _latest(heard: Heard, job_id: str) -> AttemptRecord | None:
    records = (heard.history or {}).get(job_id, ())
    return records[-1] if records else None


def _last_moment(record: AttemptRecord | None) -> float | None:
    return None if record is None else record.end or record.start or record.submit


def _is_stale(record: AttemptRecord, last_sign: float | None) -> bool:
    """Was the shard seen at work after the end that is recorded? Then an attempt is missing."""
    return (
        record.end is not None and last_sign is not None and last_sign > record.end + SAME_ATTEMPT_S
    )


def _is_same(record: AttemptRecord, entry: QueueEntry) -> bool:
    if record.start is None or entry.start is None:
        return record.submit == entry.submit
    return abs(record.start - entry.start) < 2.0


def _word(state: State) -> Word:
    return _WORDS[state.base or ""]


def _state(entry: QueueEntry | None) -> str:
    return "" if entry is None else str(entry.state)
