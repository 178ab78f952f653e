"""Batch work: many independent tasks in one shard, as many at a time as its slots.

A task that fails is recorded with its class and evidence and does not stop the others. A task
with a `done` row is never started again.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from milepost.config.command import CommandTemplate
from milepost.errors import DataError
from milepost.journal import DONE, FAILED, TASK
from milepost.model import Finding, Task
from milepost.runner.attempt import (
    TERM_GRACE_S,
    WALLTIME_STOPS,
    Attempt,
    Outcome,
    artifact_finding,
    classify_output,
    die,
    is_final,
    time_limit_finding,
)
from milepost.runner.durations import Durations
from milepost.runner.hardware import slot_environments
from milepost.runner.job import Completion, Job, Pool
from milepost.runner.oom import KILLED, OomCounter
from milepost.runner.processes import Command, ProcessPool
from milepost.runner.publish import publish, read_result, verify_output
from milepost.runner.workers import WorkerPool
from milepost.slurm.environment import inside_job

SAY_EVERY_S = 30.0
STOP_GRACE_S = 20.0
"""After a stop signal, tasks may run on for this long at most: Slurm kills after 30 s."""
LOG_LINES = 20


class Batch:
    """Runs the open tasks of a shard until they are done, failed, or time is over."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._spec = attempt.spec
        self._todo = deque(_open_tasks(attempt))
        self._total = len(attempt.shard.tasks)
        self._before = self._total - len(self._todo)
        self._outcome = Outcome(done=self._before)
        self._durations = Durations()
        self._failures = dict(attempt.journal.state.failures)
        self._given_up: dict[str, Finding] = {}
        self._retry: deque[Task] = deque()
        self._running: dict[str, Task] = {}
        self._started: dict[str, float] = {}
        self._oom = OomCounter()
        self._kills: dict[str, int | None] = {}
        self._kill_at: float | None = None
        self._said = self._began = time.monotonic()
        work = self._spec.work
        needs_out = bool(self._spec.artifacts or work.result.file)
        if work.command is not None:
            self._template = CommandTemplate.parse(work.command)
            needs_out = needs_out or "out" in self._template.fields
        self._needs_out = needs_out
        self._pool: Pool = self._make_pool()

    def _make_pool(self) -> Pool:
        attempt, work = self._attempt, self._spec.work
        slots = slot_environments(self._spec.resources, attempt.environment())

        def log(slot: int) -> Path:
            return attempt.paths.attempts / f"{attempt.number}.{slot}.log"

        if work.function is not None:
            return WorkerPool(work.function, slots, log, attempt.loop)
        return ProcessPool(self._command, slots, log, separate_stdout=work.result.stdout)

    def _command(self, job: Job) -> Command:
        values: Mapping[str, str] = job.task.params
        extra = {"MILEPOST_TASK": job.task.key}
        if job.out is not None:
            out = str(job.out)
            values = {**values, "out": out}
            extra["MILEPOST_OUT"] = out
        return self._template.argv(values), extra

    def run(self) -> Outcome:
        """Work until nothing is open or in flight; the outcome counts the whole shard."""
        attempt, pool = self._attempt, self._pool
        try:
            self._dispatch()
            while pool.in_flight() or self._next_exists():
                attempt.loop.wait(self._patience_s())
                self._take_back(pool.give_back())
                ended = pool.reap()
                self._look_at_the_clock()
                self._dispatch()
                for completion in ended:
                    self._settle(completion)
                self._dispatch()
                self._report()
            self._give_up_what_never_fits()
            attempt.sync.flush()
        finally:
            pool.close()
        return self._finish()

    def _next_exists(self) -> bool:
        return self._outcome.stop is None and bool(self._todo or self._retry)

    def _patience_s(self) -> float:
        if self._kill_at is not None:
            return min(1.0, self._kill_at - time.monotonic())
        return 1.0

    def _dispatch(self) -> None:
        while self._outcome.stop is None and (self._todo or self._retry) and self._pool.free():
            task = self._todo.popleft() if self._todo else self._retry.popleft()
            self._pool.start(Job(task, self._make_out(task) if self._needs_out else None))
            self._running[task.key] = task
            self._started[task.key] = time.monotonic()
            self._kills[task.key] = self._oom.known

    def _make_out(self, task: Task) -> Path:
        """An empty folder: what a failed try left behind must not pass for output of the next."""
        out = self._attempt.out / task.key
        if out.exists():
            shutil.rmtree(out)
        out.mkdir(parents=True)
        return out

    def _take_back(self, jobs: Sequence[Job]) -> None:
        for job in reversed(jobs):
            del self._running[job.task.key], self._started[job.task.key]
            self._todo.appendleft(job.task)

    def _look_at_the_clock(self) -> None:
        """Stop taking tasks when told to or when the next one would not fit; end what overruns."""
        attempt, outcome, now = self._attempt, self._outcome, time.monotonic()
        attempt.check_lease()
        if outcome.stop is None:
            if attempt.loop.stop is not None:
                outcome.stop = f"signal {attempt.loop.stop}"
                self._kill_at = now + min(STOP_GRACE_S, 1.0 + 1.5 * self._durations.p95_s)
            elif attempt.remaining_s() < (self._durations.p95_s if self._next_exists() else 0.0):
                outcome.stop = "walltime"
                self._kill_at = now + max(0.0, attempt.remaining_s())
        if self._kill_at is not None and (now >= self._kill_at or attempt.loop.stops > 1):
            self._end_what_runs()

    def _end_what_runs(self) -> None:
        """TERM, a moment, KILL. What is ended so has no row: it runs again."""
        self._pool.kill(signal.SIGTERM)
        until = time.monotonic() + TERM_GRACE_S
        while self._pool.in_flight() and time.monotonic() < until:
            self._attempt.loop.wait(until - time.monotonic())
            for completion in self._pool.reap():
                if completion.exit_code == 0:
                    self._settle(completion)
        self._pool.close()

    def _settle(self, completion: Completion) -> None:
        """Turn an ended job into its journal row."""
        outcome = self._outcome
        outcome.add_usage(completion.cpu_s, completion.max_rss_bytes)
        if self._kill_at is not None and completion.exit_code < 0:
            return  # ended by us or with us: in flight, not failed
        del self._running[completion.job.task.key]
        self._started.pop(completion.job.task.key)
        if completion.exit_code != 0:
            self._fail(completion, self._classify(completion))
            return
        try:
            self._succeed(completion)
        except DataError as error:
            kills = self._oom_kills(completion)
            self._fail(completion, artifact_finding(error, kills))
        if self._attempt.drill and outcome.done > self._before:
            self._attempt.sync.flush()
            self._pool.kill(signal.SIGKILL)
            die()

    def _classify(self, completion: Completion) -> Finding:
        kills = self._oom_kills(completion)
        return classify_output(
            completion.output, completion.exit_code, kills, self._spec.signatures
        )

    def _oom_kills(self, completion: Completion) -> int | None:
        """Kills for want of memory while the task ran that cannot have hit another one."""
        kills = self._oom.rose_since(self._kills.pop(completion.job.task.key, None))
        is_its_own = completion.exit_code in KILLED or self._pool.capacity == 1
        return kills if is_its_own else None

    def _succeed(self, completion: Completion) -> None:
        job, attempt = completion.job, self._attempt
        data: dict[str, Any] = {}
        files: list[Path] = []
        target = attempt.run.artifact(job.task.key)
        if job.out is not None:
            proofs = verify_output(job.out, self._spec.artifacts, job.task.params)
            result = self._result(completion)
            publish(job.out, target, proofs)
            files = [target / proof.path for proof in proofs]
            data["artifacts"] = [proof.as_json() for proof in proofs]
        else:
            result = self._result(completion)
        if result:
            data["result"] = result
        data |= {"cpu_s": completion.cpu_s, "max_rss_bytes": completion.max_rss_bytes}
        attempt.journal.append(TASK, job.task.key, DONE, seconds=completion.seconds, data=data)
        attempt.sync.add(files, attempt.run.artifacts if job.out is not None else None)
        self._given_up.pop(job.task.key, None)
        self._durations.add(completion.seconds)
        self._outcome.done += 1
        self._outcome.useful_s = (self._outcome.useful_s or 0.0) + completion.seconds

    def _result(self, completion: Completion) -> dict[str, Any]:
        return read_result(
            self._spec.work.result,
            completion.job.out,
            completion.returned,
            completion.last_line,
        )

    def _give_up_what_never_fits(self) -> None:
        """Tasks that a whole walltime was too short for have failed; more attempts will not help."""
        outcome = self._outcome
        if outcome.stop in WALLTIME_STOPS and outcome.done == self._before and self._running:
            outcome.stop, finding = None, time_limit_finding(self._attempt)
            for task in self._running.values():
                self._record_failure(task, finding, None, None, [])
                self._given_up[task.key] = finding

    def _record_failure(
        self,
        task: Task,
        finding: Finding,
        exit_code: int | None,
        seconds: float | None,
        lines: Sequence[str],
    ) -> None:
        from milepost.evidence.redact import without_credentials

        log = without_credentials(list(lines))
        data = {"finding": finding.as_json(), "exit": exit_code, "log": log}
        self._attempt.journal.append(TASK, task.key, FAILED, seconds=seconds, data=data)
        self._attempt.sync.add([])

    def _fail(self, completion: Completion, finding: Finding) -> None:
        task = completion.job.task
        self._failures[task.key] = self._failures.get(task.key, 0) + 1
        lines = completion.output.decode("utf-8", "replace").splitlines()[-LOG_LINES:]
        self._record_failure(task, finding, completion.exit_code, completion.seconds, lines)
        if self._attempt.may_retry(task.key, finding, self._failures[task.key]):
            self._retry.append(task)
        self._given_up[task.key] = finding

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._said >= SAY_EVERY_S:
            self._said = now
            fresh = self._outcome.done - self._before
            rate = fresh / (now - self._began)
            left = self._total - self._outcome.done - len(self._given_up)
            eta = f", {left / rate:.0f} s left" if rate > 0 else ""
            self._attempt.say(
                f"{self._outcome.done}/{self._total} tasks done, {len(self._given_up)} failed, "
                f"{rate:.1f}/s{eta}"
            )

    def _finish(self) -> Outcome:
        """Lost is what was in flight at a stop: wall seconds, shared by what ran at once."""
        outcome = self._outcome
        skipped = _skipped(self._attempt)
        if outcome.stop is not None:
            now = time.monotonic()
            spent_s = sum(now - began for began in self._started.values())
            outcome.lost_s = spent_s / self._pool.capacity
        outcome.findings = [*self._given_up.values(), *skipped]
        outcome.failed = len(outcome.findings)
        return outcome


def _open_tasks(attempt: Attempt) -> list[Task]:
    closed = attempt.journal.state.done.keys() | _failed_for_good(attempt)
    return [task for task in attempt.shard.tasks if task.key not in closed]


def _failed_for_good(attempt: Attempt) -> set[str]:
    """Tasks that are not tried again unasked: the same again is no remedy, or was tried enough."""
    if not attempt.is_automatic:
        return set()
    state, limit = attempt.journal.state, attempt.spec.retry_limit
    on_slurm = inside_job() is not None
    return {
        name
        for name, row in state.failed.items()
        if is_final(row.data.get("finding", {}), on_slurm=on_slurm) or state.failures[name] > limit
    }


def _skipped(attempt: Attempt) -> list[Finding]:
    """Failures of earlier attempts that this one did not try again."""
    members = {task.key for task in attempt.shard.tasks}
    failed = attempt.journal.state.failed
    names = sorted(_failed_for_good(attempt) & members)
    return [Finding.from_json(failed[name].data["finding"]) for name in names]
