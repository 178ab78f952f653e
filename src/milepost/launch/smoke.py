"""The smoke test: it gates the launch and calibrates it.

1. A small slice runs undisturbed, for real; what it took is measured.
2. The same slice runs again and is killed (SIGKILL, runner and work alike) at its first durable
   progress; then it is run once more and must go on from there.
3. The control metric of both must agree. A slice that resumes to another result, that does not
   resume, or that repeats what was done, fails the gate, and nothing is launched.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from milepost.clock import utc_now
from milepost.config.contract import Contract, load_contract
from milepost.config.spec import ControlSpec
from milepost.config.tasks import read_tasks
from milepost.durable import read_json, write_json
from milepost.journal import CHECKPOINT, DONE, STAGE, TASK, Row, read_journal, read_rows
from milepost.launch.measure import measure, nothing_measured, restore_seconds
from milepost.launch.slice import Slice, SliceRun, choose_rows
from milepost.lease import Lease, acquire_when_free
from milepost.model import Shard, Task
from milepost.paths import RunPaths

SCHEMA = 1
INTERVAL_S = 0.25
"""Interval in a slice: short, so that a short slice has something to resume from. A checkpoint
that takes longer is not repeated before it is durable."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The control metric of the undisturbed slice and of the one that was killed and resumed."""

    metric: str
    undisturbed: Any
    resumed: Any
    equal: bool
    rtol: float
    atol: float


class SmokeFailure(Exception):
    """The gate stays shut; the text says why and what to do."""


def smoke(paths: RunPaths, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the smoke test of a run, or take the one that passed on this contract; the record.

    The record is written to results either way, and kept below `smoke_work`, since Snakemake
    removes the output of a rule that failed. A failed test is run again at the next call.
    """
    contract = load_contract(paths)
    place = paths.smoke_place(contract.digest)
    kept = place / "passed.json"
    lease = Lease(place)
    acquire_when_free(lease, say)
    try:
        if not kept.exists():
            record = _test(contract, paths, place)
            write_json(kept if record["passed"] else place / "failed.json", record)
            if not record["passed"]:
                write_json(paths.smoke, record)
                return record
    finally:
        lease.release()
    passed: dict[str, Any] = read_json(kept)
    write_json(paths.smoke, passed)
    return passed


def _test(contract: Contract, paths: RunPaths, place: Path) -> dict[str, Any]:
    spec = contract.spec
    rows = choose_rows(read_tasks(paths.root / spec.work.table, spec), spec.smoke)
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "run": spec.name,
        "contract_digest": contract.digest,
        "passed": False,
        "reason": "",
        "slice": {"tasks": len(rows), "set": dict(spec.smoke.set)},
        "killed": None,
        "resumed": None,
        "control": None,
        "measured": nothing_measured(),
        "created": utc_now(),
    }
    try:
        calm = Slice.prepare(contract, rows, place / "undisturbed", INTERVAL_S)
        seconds = _run_calm(calm)
        record["measured"] = measure(calm, seconds)
        rough = Slice.prepare(contract, rows, place / "disturbed", INTERVAL_S)
        record |= _kill_and_resume(rough)
        record["measured"]["restore_s"] = restore_seconds(rough)
        control = [compare_shard(calm, rough, shard, spec.control) for shard in calm.shards]
        record["control"] = asdict(_worst(control))
        _require_equal(control)
    except SmokeFailure as failure:
        record["reason"] = str(failure)
        return record
    record |= {"passed": True, "reason": "resumed after SIGKILL to the same result"}
    return record


def _run_calm(calm: Slice) -> list[float]:
    seconds = []
    for shard in calm.shards:
        ran = calm.run(shard)
        if ran.exit_code != 0:
            raise SmokeFailure(
                f"the undisturbed slice failed with exit code {ran.exit_code}: {_last_line(ran)}\n"
                f"  its log: {calm.paths.shard(shard.name).attempts}"
            )
        seconds.append(ran.seconds)
    return seconds


def _kill_and_resume(rough: Slice) -> dict[str, Any]:
    """Kill each shard of the slice at its first durable progress, then resume it."""
    killed: dict[str, Any] = {}
    resumed: dict[str, Any] = {}
    for shard in rough.shards:
        first = rough.run(shard, drill=True)
        if first.exit_code == 0:
            raise SmokeFailure(
                "the slice ended before it had made durable progress, so nothing could be resumed; "
                "make it longer (`smoke.set`), or let the program checkpoint more often"
            )
        if first.exit_code != -signal.SIGKILL:
            raise SmokeFailure(
                f"the slice failed with exit code {first.exit_code} before it was killed: "
                f"{_last_line(first)}"
            )
        before = read_journal(rough.paths.shard(shard.name).journal)
        killed = {
            "signal": "KILL",
            "after": _progress(before.done, before.checkpoints),
            "attempt": 1,
        }
        second = rough.run(shard)
        if second.exit_code != 0:
            raise SmokeFailure(
                f"the slice did not resume: exit code {second.exit_code}: {_last_line(second)}\n"
                f"  its log: {rough.paths.shard(shard.name).attempts}"
            )
        resumed = _what_was_repeated(rough, shard, set(before.done))
    return {"killed": killed, "resumed": resumed}


def _progress(done: Mapping[str, Row], checkpoints: Sequence[Row]) -> str:
    if checkpoints:
        return f"checkpoint {checkpoints[-1].name}"
    stages = [row.name for row in done.values() if row.event == STAGE]
    return f"stage {stages[-1]}" if stages else f"{len(done)} tasks done"


def _what_was_repeated(rough: Slice, shard: Shard, done_before: set[str]) -> dict[str, Any]:
    """Check that attempt 2 went on where attempt 1 was killed."""
    rows = list(read_rows(rough.paths.shard(shard.name).journal))
    again = [r for r in rows if r.attempt > 1 and r.event in (TASK, STAGE) and r.status == DONE]
    twice = sorted({row.name for row in again} & done_before)
    if twice:
        raise SmokeFailure(f"work that was done ran again after the kill: {', '.join(twice[:5])}")
    restored = rough.attempt(shard, 2).get("restored")
    had_checkpoint = any(row.event == CHECKPOINT and row.attempt == 1 for row in rows)
    if had_checkpoint and not isinstance(restored, Mapping):
        raise SmokeFailure(
            "the program began anew instead of restoring its checkpoint; call "
            "Checkpointer.restore() before the first step"
        )
    step = restored.get("step") if isinstance(restored, Mapping) else None
    return {"attempt": 2, "restored_step": step, "rerun": len(again)}


def compare_shard(
    calm: Slice, rough: Slice, shard: Shard, control: ControlSpec | None
) -> Comparison:
    """Compare the worst task of a shard; without a control metric, the artifacts' digests."""
    found = [_compare_task(calm, rough, shard, task, control) for task in shard.tasks]
    return _worst(found)


def _compare_task(
    calm: Slice, rough: Slice, shard: Shard, task: Task, control: ControlSpec | None
) -> Comparison:
    if control is None:
        left, right = (_proofs(side, shard, task) for side in (calm, rough))
        return Comparison("artifacts and result", left, right, left == right, 0.0, 0.0)
    left, right = (_metric(side.folder(shard, task), control) for side in (calm, rough))
    equal = _is_equal(left, right, control.rtol, control.atol)
    return Comparison(control.metric, left, right, equal, control.rtol, control.atol)


def _metric(folder: Path, control: ControlSpec) -> Any:
    path = folder / control.file
    try:
        return read_json(path)[control.metric]
    except FileNotFoundError as error:
        raise SmokeFailure(f"the control metric's file {control.file} was not written") from error
    except (KeyError, TypeError) as error:
        raise SmokeFailure(f"{control.file} has no key {control.metric!r}") from error


def _is_equal(left: Any, right: Any, rtol: float, atol: float) -> bool:
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        same = left == right or (math.isnan(left) and math.isnan(right))
        return same or abs(left - right) <= atol + rtol * abs(left)
    return bool(left == right)


def _proofs(side: Slice, shard: Shard, task: Task) -> Any:
    row = read_journal(side.paths.shard(shard.name).journal).done[task.key].data
    files = {proof["path"]: proof["digest"] for proof in row.get("artifacts", ())}
    return json.loads(json.dumps({"artifacts": files, "result": row.get("result")}))


def _worst(found: Sequence[Comparison]) -> Comparison:
    return next((c for c in found if not c.equal), found[0])


def _require_equal(found: Sequence[Comparison]) -> None:
    worst = _worst(found)
    if not worst.equal:
        raise SmokeFailure(
            f"the resumed slice came to another result: {worst.metric} is {worst.resumed!r}, "
            f"undisturbed it is {worst.undisturbed!r} (rtol {worst.rtol}, atol {worst.atol}); "
            "look whether all state, the random generator's included, is in the checkpoint, "
            "or name the metric and its tolerance in `control`"
        )


def _last_line(ran: SliceRun) -> str:
    lines = [line for line in ran.said.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
