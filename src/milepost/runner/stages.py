"""Stages: the seams of a pipeline are its durable points.

The outputs of a finished stage are kept below the shard's live folder with their digests in the
journal. An attempt begins with a private folder into which the outputs of all finished stages are
linked; the first stage without a row, or whose outputs do not match their digests, runs next. A
kill between two stages so repeats only the stage that was running.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from milepost.artifacts import verify_proofs
from milepost.config.command import CommandTemplate
from milepost.config.spec import StageSpec
from milepost.durable import fsync_directory, inside, publish_directory
from milepost.errors import DataError
from milepost.journal import DONE, FAILED, STAGE, TASK
from milepost.model import ArtifactCheck, FileProof
from milepost.runner.attempt import (
    WALLTIME_STOPS,
    Attempt,
    Outcome,
    artifact_finding,
    classify_output,
    die,
    time_limit_finding,
)
from milepost.runner.finish import finish_member, is_finished
from milepost.runner.hardware import slot_environments
from milepost.runner.publish import verify_output
from milepost.runner.single import StopRule, run_process

STOP_GRACE_S = 5.0
"""A stage cannot be resumed in its middle, so a stop signal gives it little time."""


def run_stages(attempt: Attempt) -> Outcome:
    """Run the stages that are not done, in order; then verify and publish."""
    outcome = Outcome()
    if is_finished(attempt):
        outcome.done = 1
        return outcome
    attempt.out.mkdir(parents=True, exist_ok=True)
    kept = _lay_out(attempt)
    for number, stage in enumerate(attempt.spec.work.stages):
        if number < kept:
            continue
        if not _run_stage(attempt, stage, outcome, first=number == 0):
            return outcome
    finish_member(attempt, outcome)
    return outcome


def _store(attempt: Attempt, stage: StageSpec) -> Path:
    return attempt.paths.live / "stages" / stage.name


def _lay_out(attempt: Attempt) -> int:
    """Link the outputs of finished stages into the private folder; how many there are."""
    for number, stage in enumerate(attempt.spec.work.stages):
        row = attempt.journal.state.done.get(stage.name)
        store = _store(attempt, stage)
        if row is None:
            return number
        proofs = [FileProof(p["path"], p["bytes"], p["digest"]) for p in row.data["artifacts"]]
        problems = verify_proofs(store, proofs, True)
        if problems:
            attempt.say(f"stage {stage.name} runs again: {problems[0]}")
            return number
        for proof in proofs:
            _link(inside(store, proof.path), inside(attempt.out, proof.path))
    return len(attempt.spec.work.stages)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links: a copy serves as well
        shutil.copy2(source, target)


def _run_stage(attempt: Attempt, stage: StageSpec, outcome: Outcome, *, first: bool) -> bool:
    """Run one stage and keep its outputs; False when the attempt ends here."""
    values = {**attempt.shard.tasks[0].params, "out": str(attempt.out)}
    argv = CommandTemplate.parse(stage.command).argv(values)
    env = slot_environments(attempt.spec.resources, attempt.environment())[0]
    env |= {"MILEPOST_OUT": str(attempt.out), "MILEPOST_STAGE": stage.name}
    hard = attempt.deadline if attempt.deadline is not None else float("inf")
    rule = StopRule(signal.SIGTERM, hard, hard, STOP_GRACE_S)
    log = attempt.paths.log(attempt.number)

    def look(pid: int) -> None:
        attempt.check_lease()
        if attempt.drill and not first:
            attempt.sync.flush()
            os.killpg(pid, signal.SIGKILL)
            die()

    attempt.say(f"stage {stage.name} begins")
    ended = run_process(argv, env, log, attempt.loop, rule, look)
    outcome.add_usage(ended.cpu_s, ended.max_rss_bytes)
    if ended.exit_code == 0:
        try:
            _keep(attempt, stage, values, ended.seconds)
        except DataError as error:
            finding = artifact_finding(error, ended.oom_kills)
        else:
            outcome.useful_s = (outcome.useful_s or 0.0) + ended.seconds
            return True
    elif ended.stop is not None:
        outcome.lost_s = ended.seconds
        if ended.stop not in WALLTIME_STOPS or outcome.useful_s is not None:
            outcome.stop = ended.stop
            return False
        finding = time_limit_finding(attempt)
    else:
        finding = classify_output(
            ended.output, ended.exit_code, ended.oom_kills, attempt.spec.signatures
        )
    lines = ended.output.decode("utf-8", "replace").splitlines()[-20:]
    from milepost.evidence.redact import without_credentials

    log = without_credentials(lines)
    data = {"finding": finding.as_json(), "exit": ended.exit_code, "log": log}
    attempt.journal.append(STAGE, stage.name, FAILED, seconds=ended.seconds, data=data)
    attempt.journal.append(
        TASK, attempt.shard.tasks[0].key, FAILED, seconds=ended.seconds, data=data
    )
    attempt.sync.flush()
    outcome.findings.append(finding)
    outcome.failed = 1
    return False


def _keep(attempt: Attempt, stage: StageSpec, values: Mapping[str, str], seconds: float) -> None:
    """Verify a stage's outputs, keep them under links of their own, write the row."""
    checks = [ArtifactCheck(path, "exists") for path in stage.outputs]
    proofs = verify_output(attempt.out, checks, values)
    near = attempt.paths.live / "stages" / f".{stage.name}.{attempt.number}"
    shutil.rmtree(near, ignore_errors=True)
    near.mkdir(parents=True)
    for proof in proofs:
        _link(inside(attempt.out, proof.path), inside(near, proof.path))
    store = _store(attempt, stage)
    if store.exists():  # no row speaks for it, or its outputs were found damaged
        store.rename(store.with_name(f".{stage.name}.unproven-{attempt.number}-{time.time_ns()}"))
    if not publish_directory(near, store):
        raise DataError("somebody else keeps the same stage", where=store)
    fsync_directory(store.parent)
    data: dict[str, Any] = {"artifacts": [proof.as_json() for proof in proofs]}
    attempt.journal.append(STAGE, stage.name, DONE, seconds=seconds, data=data)
    attempt.sync.add([store / proof.path for proof in proofs])
    attempt.sync.flush()
