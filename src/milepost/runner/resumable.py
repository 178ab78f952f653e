"""Resumable work: one long process that checkpoints itself, supervised until it is done.

The process finds in MILEPOST_CKPT where and how to checkpoint. The runner watches the folder of
generations and gives each new one its journal row; it passes stop signals on and asks for a last
checkpoint before its own deadline, without depending on the scheduler's signal.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from milepost.apps.adapter import Adapter, load_adapter
from milepost.checkpoint.store import CheckpointStore
from milepost.clock import epoch
from milepost.config.command import CommandTemplate
from milepost.durable import read_json
from milepost.errors import RESUMABLE, DataError
from milepost.journal import CHECKPOINT, COMMITTED, FAILED, TASK
from milepost.model import FailureClass, Finding
from milepost.runner.attempt import (
    WALLTIME_STOPS,
    Attempt,
    Outcome,
    classify_output,
    die,
    time_limit_finding,
)
from milepost.runner.finish import finish_member, is_finished
from milepost.runner.hardware import slot_environments
from milepost.runner.lost import (
    note_all_lost,
    note_restored,
    note_restored_before,
    restored_note,
)
from milepost.runner.pacing import Pacing
from milepost.runner.places import checkpoint_place, saving_options
from milepost.runner.single import Ended, StopRule, run_process

MARGIN_S = 60.0
"""Before the deadline beyond what a checkpoint takes; a tenth of the walltime where that is less."""
STOP_GRACE_S = 25.0
"""From a stop signal to the end: Slurm kills 30 s after its own."""


class Resumable:
    """Supervises the application of one attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._adapter: Adapter = load_adapter(attempt.spec.work.adapter)
        self._folder = checkpoint_place(
            attempt.spec.tiers.scratch, attempt.spec.name, attempt.shard.name
        )
        self._store = CheckpointStore(Path(self._folder))
        self._known = {row.name for row in attempt.journal.state.checkpoints}
        self._note = restored_note(attempt.paths, attempt.number)
        self._outcome = Outcome()
        self._blocked_s: list[float] = []
        self._costs = [row.data for row in attempt.journal.state.checkpoints]
        self._pacing = Pacing(attempt, self._folder, self._costs)
        self._rule = self._stop_rule()

    def run(self) -> Outcome:
        """Run the application once, to its end or to a stop."""
        attempt, outcome = self._attempt, self._outcome
        if is_finished(attempt):
            outcome.done = 1
            return outcome
        self._adopt_generations()
        self._blocked_s.clear()  # those of an attempt that died before it could give them rows
        self._forgive()
        known = len(self._known)
        attempt.out.mkdir(parents=True, exist_ok=True)
        note_restored_before(attempt.paths, attempt.number, self._store)
        if not known:
            note_all_lost(attempt.paths, attempt.number)
        ended = self._start()
        if self._adopt_generations() and attempt.drill:
            self._die()  # it was faster than our look: the checkpoint stands, its end is not known
        outcome.add_usage(ended.cpu_s, ended.max_rss_bytes)
        outcome.checkpoint_s = sum(self._blocked_s) if self._blocked_s else None
        outcome.useful_s = max(0.0, ended.seconds - (outcome.checkpoint_s or 0.0))
        outcome.planned = self._pacing.planned
        self._restored()
        self._judge(ended, has_progress=len(self._known) > known)
        return outcome

    def _forgive(self) -> None:
        """A checkpoint is suspect after two restores that came to nothing; not when the attempt
        was interrupted from outside, which is no fault of the checkpoint."""
        previous = self._attempt.number - 1
        if previous < 1:
            return
        record = read_json(self._attempt.paths.attempt(previous))
        if record["ended"] is None or record["stop"] not in ("failed", "error"):
            for name in self._store.restore_counts():
                self._store.clear_restore(name)

    def _start(self) -> Ended:
        attempt = self._attempt
        values = {**attempt.shard.tasks[0].params, "out": str(attempt.out)}
        assert attempt.spec.work.command is not None
        argv = CommandTemplate.parse(attempt.spec.work.command).argv(values)
        env = slot_environments(attempt.spec.resources, attempt.environment())[0]
        env |= {
            "MILEPOST_OUT": str(attempt.out),
            "MILEPOST_TASK": attempt.shard.tasks[0].key,
            "MILEPOST_RESTORED": str(self._note.absolute()),
            "MILEPOST_CKPT": json.dumps(self._settings()),
            "MILEPOST_METRICS": str(attempt.run.metrics(attempt.shard.name).absolute()),
        }
        return run_process(
            argv,
            env,
            attempt.paths.log(attempt.number),
            attempt.loop,
            self._rule,
            self._look,
        )

    def _settings(self) -> dict[str, Any]:
        """What `Checkpointer.from_env` reads; places are absolute or URLs."""
        attempt, ckpt, tiers = (
            self._attempt,
            self._attempt.spec.checkpoint,
            self._attempt.spec.tiers,
        )
        far = {
            name: checkpoint_place(place, attempt.spec.name, attempt.shard.name)
            for name, place in (("warm", tiers.warm), ("cold", tiers.cold))
            if place is not None
        }
        remaining_s = attempt.remaining_s()
        return {
            "folder": self._folder,
            "warm": far.get("warm"),
            "cold": far.get("cold"),
            "upload": ckpt.uploader.enable,
            "to": ckpt.uploader.to,
            "cold_every": ckpt.uploader.cold_every,
            "max_bandwidth_mb_s": ckpt.uploader.max_bandwidth_mb_s,
            "retries": ckpt.uploader.retries,
            **self._pacing.start(),
            "deadline": time.time() + remaining_s,
            "deadline_margin_s": self._margin_s(),
            **saving_options(ckpt),
        }

    def _margin_s(self) -> float:
        return min(MARGIN_S, 0.1 * self._attempt.remaining_s())

    def _stop_rule(self) -> StopRule:
        hard = self._attempt.deadline if self._attempt.deadline is not None else float("inf")
        number = signal.Signals[f"SIG{self._adapter.signal}"]
        return StopRule(number, hard - self._margin_s(), hard, STOP_GRACE_S)

    def _look(self, pid: int) -> None:
        self._attempt.check_lease()
        self._pacing.look()
        self._restored()
        new = self._adopt_generations()
        if new and self._attempt.drill:
            os.killpg(pid, signal.SIGKILL)
            self._die()

    def _die(self) -> NoReturn:
        self._attempt.sync.flush()
        die()

    def _adopt_generations(self) -> int:
        """Write a row for each generation that was committed since the last look."""
        new = [name for name in reversed(self._store.generations()) if name not in self._known]
        for name in new:
            self._known.add(name)
            try:
                manifest = self._store.manifest(name)
            except (DataError, FileNotFoundError) as error:
                self._attempt.say(f"checkpoint {name} is not counted: {error}")
                continue
            metrics = manifest.metrics
            if metrics.blocked_s is not None:
                self._blocked_s.append(metrics.blocked_s)
            data = {
                "step": manifest.step,
                "bytes": metrics.bytes_stored,
                "blocked_s": metrics.blocked_s,
                "durable_s": metrics.durable_s,
                "created": manifest.created,
                "path": str(self._store.path(name)),
            }
            self._costs.append(data)
            journal = self._attempt.journal
            journal.append(CHECKPOINT, name, COMMITTED, seconds=metrics.blocked_s, data=data)
            self._attempt.sync.add([])
        return len(new)

    def _restored(self) -> Mapping[str, Any] | None:
        """What the application restored, and what was lost; recorded as soon as it says so, since
        this attempt may die as well."""
        attempt, outcome = self._attempt, self._outcome
        if outcome.restored is None:
            note = note_restored(attempt.paths, attempt.number, self._store)
            if note is not None:
                outcome.restored, outcome.lost_s = note, note["lost_s"]
        return outcome.restored

    def _judge(self, ended: Ended, *, has_progress: bool) -> None:
        """What the end of the application means for the shard."""
        outcome = self._outcome
        if ended.exit_code == 0:
            finish_member(self._attempt, outcome, ended.oom_kills)
        elif ended.stop is not None:
            outcome.stop = ended.stop
            outcome.is_saved = ended.exit_code == RESUMABLE or self._is_saved_since_told()
        elif ended.exit_code == RESUMABLE:
            outcome.stop, outcome.is_saved = "walltime", True
        else:
            self._record_failure(ended, _classify(ended, self._attempt))
        if outcome.stop in WALLTIME_STOPS and not has_progress:
            outcome.stop = None
            self._record_failure(ended, time_limit_finding(self._attempt))

    def _is_saved_since_told(self) -> bool:
        """Was a checkpoint committed after the application was told to stop?

        It may all the same not get as far as its own 75: Slurm tells it twice, and a second TERM
        ends a process that is on its way out.
        """
        told = self._attempt.loop.stopped_at or self._rule.soft
        told_s = time.time() - (time.monotonic() - told)
        newest = self._costs[-1].get("created") if self._costs else None
        return newest is not None and epoch(newest) >= told_s

    def _record_failure(self, ended: Ended, finding: Finding) -> None:
        if finding.failure_class is FailureClass.NONE:
            raise DataError(
                f"exit code {ended.exit_code} was classified as no failure",
                where=self._attempt.paths.log(self._attempt.number),
            )
        lines = ended.output.decode("utf-8", "replace").splitlines()[-20:]
        from milepost.evidence.redact import without_credentials

        log = without_credentials(lines)
        data = {"finding": finding.as_json(), "exit": ended.exit_code, "log": log}
        key = self._attempt.shard.tasks[0].key
        self._attempt.journal.append(TASK, key, FAILED, seconds=ended.seconds, data=data)
        self._attempt.sync.flush()
        self._outcome.findings.append(finding)
        self._outcome.failed = 1


def _classify(ended: Ended, attempt: Attempt) -> Finding:
    own = attempt.spec.signatures
    return classify_output(ended.output, ended.exit_code, ended.oom_kills, own)


def run_resumable(attempt: Attempt) -> Outcome:
    """Run the application of a resumable shard once."""
    return Resumable(attempt).run()
