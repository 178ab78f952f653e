"""One shard from lease to marker.

1. Take the lease (or wait for whoever holds it) and end what a dead attempt left running.
2. Open the journal under the new attempt number; run what has no `done` row.
3. When every task is done and every artifact verifies, publish the marker.
4. End the attempt: its record says how. Only then is the lease given back.

Where no scheduler requeues, a walltime's end leads straight to the next attempt.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from milepost.artifacts import verify_proofs
from milepost.config.contract import Contract, load_contract
from milepost.errors import RESUMABLE, DataError, MilepostError
from milepost.evidence.superseded import refuse_superseded
from milepost.journal import (
    ATTEMPT,
    ENDED,
    LOST,
    STARTED,
    TASK,
    JournalWriter,
    Row,
    read_journal,
    write_marker,
)
from milepost.lease import LOOK_AGAIN_S, Lease, acquire_when_free, update_attempt
from milepost.model import FileProof, Shard, WorkKind
from milepost.paths import RunPaths
from milepost.runner.again import check_retry
from milepost.runner.attempt import Attempt, Outcome
from milepost.runner.held import may_take
from milepost.runner.leftovers import end_leftovers
from milepost.runner.observed import note_last_sign
from milepost.runner.requeue import after_stop, remaining_s, requeue_job
from milepost.runner.signals import SignalLoop
from milepost.runner.step import become_step
from milepost.runner.sync import GroupSync
from milepost.shardtable import read_shard
from milepost.slurm.environment import inside_job


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """How a shard is run.

    `walltime_s` None takes what Slurm gives the job, else the contract's runtime. `retries` is how
    often the shard was retried without being asked.
    """

    walltime_s: float | None = None
    is_automatic: bool = False
    retries: int = 0
    wait: bool = True
    drill: bool = False


def run_shard(paths: RunPaths, name: str, options: ShardOptions, say: Callable[[str], None]) -> int:
    """Run or resume one shard; return the exit code of `milepost shard`."""
    refuse_superseded(paths)
    contract = load_contract(paths)
    become_step(contract.spec.resources.cpus)
    shard = read_shard(paths.frozen_shards, name)
    with SignalLoop() as loop:
        while True:
            check_retry(contract.spec, paths, name, options.retries)
            lease = _take_lease(contract, paths, name, options, loop, say)
            if lease is None:
                return RESUMABLE
            number = lease.attempt
            outcome = _run_attempt(contract, paths, shard, lease, options, loop, say)
            if outcome.stop is None:
                return outcome.exit_code
            job_id = inside_job()
            if job_id is not None:
                after = after_stop(job_id, outcome.stop, contract.spec.checkpoint.signal, say)
                update_attempt(paths.shard(name).attempt(number), **after.record())
                requeue_job(job_id, after, say)
                return RESUMABLE
            if outcome.stop != "walltime":
                return outcome.exit_code
            say("walltime is over; the next attempt goes on from here")
            options = replace(options, is_automatic=True)


def _take_lease(
    contract: Contract,
    paths: RunPaths,
    name: str,
    options: ShardOptions,
    loop: SignalLoop,
    say: Callable[[str], None],
) -> Lease | None:
    """The lease, or None when a stop signal came while somebody else held it."""
    lease = Lease(paths.shard(name).live, slurm_job_id=inside_job(), may_take=may_take)

    def pause() -> bool:
        loop.wait(LOOK_AGAIN_S)
        check_retry(contract.spec, paths, name, options.retries)  # it may just have been cancelled
        return loop.stop is None

    if not options.wait:
        lease.acquire()
    elif not acquire_when_free(lease, say, pause):
        return None
    if lease.taken_from is not None:
        ended = end_leftovers(lease.taken_from.token)
        note_last_sign(paths.shard(name), lease.taken_from)
        say(
            f"attempt {lease.taken_from.attempt} ended without a word; "
            f"attempt {lease.attempt} goes on"
            + (f" ({ended} of its processes still ran and were ended)" if ended else "")
        )
    return lease


def _run_attempt(
    contract: Contract,
    paths: RunPaths,
    shard: Shard,
    lease: Lease,
    options: ShardOptions,
    loop: SignalLoop,
    say: Callable[[str], None],
) -> Outcome:
    shard_paths = paths.shard(shard.name)
    walltime_s = options.walltime_s or remaining_s() or contract.spec.resources.runtime_s
    outcome = Outcome(stop="error")
    try:
        with JournalWriter(shard_paths.journal, lease.attempt) as journal:
            _report_damage(journal, say)
            journal.append(ATTEMPT, str(lease.attempt), STARTED)
            reopen_lost_tasks(journal, shard, paths, lease.taken_from is not None, say)
            sync = GroupSync(journal)
            attempt = Attempt(
                spec=contract.spec,
                contract_digest=contract.digest,
                run=paths,
                shard=shard,
                paths=shard_paths,
                lease=lease,
                journal=journal,
                sync=sync,
                loop=loop,
                deadline=time.monotonic() + walltime_s,
                is_automatic=options.is_automatic,
                drill=options.drill,
                say=say,
            )
            try:
                outcome = _work(attempt)
            finally:
                _end_own_leftovers(lease, say)
                sync.close()
            journal.append(ATTEMPT, str(lease.attempt), ENDED, data=outcome.record())
        if outcome.is_complete:
            finish_shard(shard, paths)
        _say_outcome(outcome, len(shard.tasks), say)
    except MilepostError:
        outcome = Outcome(stop="error")
        raise
    finally:
        lease.release(**outcome.record())
    return outcome


def _end_own_leftovers(lease: Lease, say: Callable[[str], None]) -> None:
    ended = end_leftovers(lease.token)
    if ended:
        say(f"ended what the work had left running (processes: {ended})")


def _work(attempt: Attempt) -> Outcome:
    kind = attempt.spec.work.kind
    if kind is WorkKind.BATCH:
        from milepost.runner.batch import Batch

        return Batch(attempt).run()
    if kind is WorkKind.STAGES:
        from milepost.runner.stages import run_stages

        return run_stages(attempt)
    from milepost.runner.resumable import run_resumable

    return run_resumable(attempt)


def _report_damage(journal: JournalWriter, say: Callable[[str], None]) -> None:
    state = journal.state
    if state.torn:
        say(f"{journal.path}: cut a torn last row; its task runs again")
    for line in state.damaged:
        say(f"{journal.path}:{line}: the row is damaged (wrong CRC) and does not count")


def reopen_lost_tasks(
    journal: JournalWriter, shard: Shard, paths: RunPaths, deep: bool, say: Callable[[str], None]
) -> None:
    """Take back the `done` of tasks whose artifacts are gone or not as their rows say.

    Sizes are compared; digests too when `deep`: after an attempt that ended without a word, a
    power cut may have left a file of the right size with other bytes. They are as well when
    everything is done, because then somebody asked for this shard again for a reason.
    """
    deep = deep or all(task.key in journal.state.done for task in shard.tasks)
    for task in shard.tasks:
        row = journal.state.done.get(task.key)
        problems = [] if row is None else artifact_problems(paths, shard, task.key, row, deep)
        if problems:
            say(f"task {task.key} runs again: {problems[0]}")
            journal.append(TASK, task.key, LOST, data={"problems": problems})
            del journal.state.done[task.key]


def artifact_problems(paths: RunPaths, shard: Shard, key: str, row: Row, deep: bool) -> list[str]:
    """What is wrong with the published artifacts of a task, by its `done` row."""
    artifacts = row.data.get("artifacts", ())
    proofs = [FileProof(p["path"], p["bytes"], p["digest"]) for p in artifacts]
    return verify_proofs(_published(paths, shard, key), proofs, deep)


def finish_shard(shard: Shard, paths: RunPaths) -> None:
    """Verify what every task left, then publish the marker: the rows that say `done`, in order.

    Otherwise a DataError names the tasks, and there is no marker. What killed attempts left in
    their private folders goes then.
    """
    state = read_journal(paths.shard(shard.name).journal)
    rows, problems = [], []
    for task in shard.tasks:
        row = state.done.get(task.key)
        if row is None:
            problems.append(f"task {task.key} has no done row")
            continue
        rows.append(row)
        wrong = artifact_problems(paths, shard, task.key, row, False)
        problems += [f"task {task.key}: {problem}" for problem in wrong]
    if problems:
        raise DataError(
            "\n  ".join(
                [f"{len(problems)} tasks of shard {shard.name} do not verify:", *problems[:10]]
            ),
            where=paths.artifacts,
            fix="run the same command again: what does not verify runs again",
        )
    write_marker(paths.shard(shard.name).marker, rows)
    for folder in (paths.shard(shard.name).live / "out").glob("[0-9]*"):
        shutil.rmtree(folder, ignore_errors=True)  # the closeout names what cannot be removed


def _published(paths: RunPaths, shard: Shard, key: str) -> Path:
    by_task = paths.artifact(key)
    return by_task if by_task.exists() else paths.artifact(shard.name)


def _say_outcome(outcome: Outcome, total: int, say: Callable[[str], None]) -> None:
    what = f"{outcome.done}/{total} tasks done"
    if outcome.failed:
        first = outcome.findings[0]
        say(f"{what}, {outcome.failed} failed; the first: {first.failure_class}/{first.subclass}")
    elif outcome.stop:
        say(f"{what}; stopped by {outcome.stop}, can be resumed")
    else:
        say(f"{what}, artifacts verified")
