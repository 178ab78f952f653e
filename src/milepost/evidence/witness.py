"""Look at one journal and at the artifacts it speaks of: what is done, failed, or not as recorded.

The result is small (keys and problems, no rows), so that a million tasks fit into memory and the
journals of a large run can be read by several processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milepost.artifacts import verify_proofs
from milepost.errors import DataError
from milepost.evidence.types import CheckpointEvidence, TaskProblem
from milepost.journal import TASK, JournalState, Row, read_journal
from milepost.model import FileProof

MISSING = "is missing"


@dataclass(frozen=True, slots=True)
class Look:
    """Which files to look at for one shard name, and how closely.

    `own_folder` is True when every task has a folder of artifacts of its own (batch). `expected`
    are the paths that the contract expects of each task.
    """

    name: str
    journals: tuple[Path, ...]
    artifacts: Path
    own_folder: bool
    expected: tuple[str, ...]
    deep: bool


@dataclass(slots=True)
class Seen:
    """What the journals of one shard name add up to, compared with the artifacts on disk."""

    name: str
    done: list[str] = field(default_factory=list)
    damaged: list[TaskProblem] = field(default_factory=list)
    failed: list[TaskProblem] = field(default_factory=list)
    checkpoints: list[CheckpointEvidence] = field(default_factory=list)
    rows: int = 0
    damaged_rows: int = 0
    superseded: int = 0
    torn: bool = False
    started: bool = False
    seconds: float = 0.0
    last_signs: dict[int, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    def keys(self) -> set[str]:
        return {*self.done, *(p.key for p in self.damaged), *(p.key for p in self.failed)}


def look(order: Look) -> Seen:
    """Read the journals of one shard and verify what they call done."""
    seen = Seen(order.name)
    for path in order.journals:
        try:
            state = read_journal(path)
        except (DataError, OSError) as error:
            seen.lost.append(f"{path}: {error}")
            continue
        _add(seen, state, order)
    return seen


def _add(seen: Seen, state: JournalState, order: Look) -> None:
    seen.rows += state.rows
    seen.damaged_rows += len(state.damaged)
    seen.superseded += state.superseded
    seen.torn |= state.torn
    seen.started |= state.rows > 0
    known, last = set(seen.done), seen.last_signs
    for row in (*state.attempts, *state.checkpoints, *state.failed.values()):
        last[row.attempt] = max(row.time, last.get(row.attempt, ""))
    for key, row in state.done.items():
        if key in known or row.event != TASK:
            continue
        seen.seconds += row.seconds or 0.0
        if row.time > last.get(row.attempt, ""):
            last[row.attempt] = row.time
        problem = _verify(key, row, order)
        if problem is None:
            seen.done.append(key)
        else:
            seen.damaged.append(problem)
    seen.failed.extend(_failure(key, row) for key, row in state.failed.items() if row.event == TASK)
    seen.checkpoints.extend(_checkpoint(row) for row in state.checkpoints)


def _verify(key: str, row: Row, order: Look) -> TaskProblem | None:
    recorded = _recorded(row.raw)
    if not recorded and not order.expected:
        return None
    folder = f"{order.artifacts}/{key if order.own_folder else order.name}"
    for proof in recorded:
        what = mismatch(folder, proof, order.deep)
        if what is not None:
            return TaskProblem(key, what, artifact=f"{folder}/{proof['path']}")
    names = {proof["path"] for proof in recorded}
    for path in order.expected:
        if path not in names and not os.path.exists(f"{folder}/{path}"):
            return TaskProblem(key, MISSING, artifact=f"{folder}/{path}")
    return None


def _recorded(raw: str) -> list[Any]:
    """The artifacts of a row; the runner writes them first, so the rest need not be parsed."""
    if raw.startswith(_FIRST):
        found: list[Any] = _DECODER.raw_decode(raw, len(_FIRST) - 1)[0]
        return found
    return json.loads(raw).get("artifacts") or []


_FIRST = '{"artifacts":['
_DECODER = json.JSONDecoder()


def mismatch(folder: str, proof: Mapping[str, Any], deep: bool) -> str | None:
    """How the file differs from its proof; None when it is as recorded."""
    try:
        if not deep and os.stat(f"{folder}/{proof['path']}").st_size == proof["bytes"]:
            return None
    except OSError:
        pass  # verify_proofs looks again and says what is wrong
    wanted = FileProof(proof["path"], proof["bytes"], proof["digest"])
    problems = verify_proofs(Path(folder), [wanted], deep)
    return problems[0].removeprefix(f"{wanted.path}: ") if problems else None


def _failure(key: str, row: Row) -> TaskProblem:
    data = row.data
    finding, code = data.get("finding"), data.get("exit")
    subclass = f" ({finding['class']}: {finding['subclass']})" if finding else ""
    how = "" if code is None else f", exit {code}"
    return TaskProblem(key, f"failed in attempt {row.attempt}{how}{subclass}", None, finding, code)


def _checkpoint(row: Row) -> CheckpointEvidence:
    data = row.data
    return CheckpointEvidence(
        row.name,
        row.time,
        data.get("step"),
        data.get("bytes"),
        data.get("blocked_s"),
        data.get("durable_s"),
        data.get("path"),
    )


def look_at_all(orders: Sequence[Look], processes: int) -> Iterator[Seen]:
    """Look at every shard; in several processes when there is much to read."""
    if processes < 2 or len(orders) < 2 * processes:
        yield from map(look, orders)
        return
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(look, orders, chunksize=max(1, len(orders) // (8 * processes)))
