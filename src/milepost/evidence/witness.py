"""Look at one journal and at the artifacts it speaks of: what is done, failed, or not as recorded.

The result is small (keys and problems, no rows), so that a million tasks fit into memory and the
journals of a large run can be read by several processes.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milepost.artifacts import verify_proofs
from milepost.errors import DataError
from milepost.evidence.columns import Tally, tally
from milepost.evidence.types import CheckpointEvidence, TaskProblem
from milepost.journal import TASK, Row
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
            found = tally(path)
        except (DataError, OSError, ValueError) as error:
            seen.lost.append(f"{path}: {error}")
            continue
        _add(seen, found, order)
    return seen


def _add(seen: Seen, found: Tally, order: Look) -> None:
    state = found.state
    seen.rows += state.rows
    seen.damaged_rows += len(state.damaged)
    seen.superseded += state.superseded
    seen.torn |= state.torn
    seen.started |= state.rows > 0
    known = set(seen.done)
    for row in (*state.attempts, *state.checkpoints, *state.failed.values()):
        _sign(seen, row.attempt, row.time)
    for key, row in state.done.items():
        _sign(seen, row.attempt, row.time)
        if key in known or row.event != TASK:
            continue
        seen.seconds += row.seconds or 0.0
        _judge(seen, key, row.raw, order)
    _add_columns(seen, found, known, order)
    seen.failed.extend(_failure(key, row) for key, row in state.failed.items() if row.event == TASK)
    seen.checkpoints.extend(_checkpoint(row) for row in state.checkpoints)


def _sign(seen: Seen, attempt: int, time: str) -> None:
    seen.last_signs[attempt] = max(time, seen.last_signs.get(attempt, ""))


def _add_columns(seen: Seen, found: Tally, known: set[str], order: Look) -> None:
    """The tasks that are columns, without those that the journal before has named."""
    names, rows, seconds = found.names, found.data, found.seconds
    if known.intersection(names):
        new = [i for i, name in enumerate(names) if name not in known]
        names, rows = [names[i] for i in new], [rows[i] for i in new]
        seconds = [seconds[i] for i in new]
    seen.seconds += _sum(seconds)
    for attempt, time in found.last_signs.items():
        _sign(seen, attempt, time)
    is_bare = {row[: len(_NOTHING)] for row in rows} <= {_NOTHING}
    if order.expected or not is_bare:
        _judge_all(seen, zip(names, rows, strict=True), order)
    else:
        seen.done.extend(names)


def _judge_all(seen: Seen, pairs: Iterable[tuple[str, bytes]], order: Look) -> None:
    """Judge many tasks. Where one recorded file is all that is expected, its size is all to see."""
    is_plain = order.own_folder and not order.deep and len(order.expected) < 2
    expected = [path.encode() for path in order.expected]
    with _opened(order.artifacts) if is_plain else nullcontext() as folder:
        for key, data in pairs:
            if folder is not None and _is_as_recorded(folder, key, _ONE.match(data), expected):
                seen.done.append(key)
            else:
                _judge(seen, key, data[1:-1].decode().replace('""', '"'), order)


def _is_as_recorded(
    folder: int, key: str, one: re.Match[bytes] | None, expected: Sequence[bytes]
) -> bool:
    """Whether the one file of a task has its size; if not, `_judge` says what is wrong."""
    if one is None or expected not in ([], [one[1]]):
        return False
    try:
        return os.stat(b"%s/%s" % (key.encode(), one[1]), dir_fd=folder).st_size == int(one[2])
    except OSError:
        return False


def _sum(seconds: Sequence[bytes]) -> float:
    try:
        return math.fsum(map(float, seconds))
    except ValueError:
        return math.fsum(float(one) for one in seconds if one)  # a row without a duration


@contextmanager
def _opened(folder: Path) -> Iterator[int | None]:
    """The folder of all artifacts, so that the kernel need not walk to it for each of them.

    None where it cannot be opened: then each task says what is missing.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _judge(seen: Seen, key: str, raw: str, order: Look) -> None:
    problem = _verify(key, raw, order)
    if problem is None:
        seen.done.append(key)
    else:
        seen.damaged.append(problem)


def _verify(key: str, raw: str, order: Look) -> TaskProblem | None:
    recorded = _recorded(raw)
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
_NOTHING = b'"{""artifacts"":[]'
_ONE = re.compile(
    rb'"\{""artifacts"":\[\{""path"":""([^"\\]+)"",""bytes"":(\d+),""digest"":""[^"\\]+""\}\]'
)
"""A row with one artifact; a name with quotes or escapes is left to the parser of JSON."""
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
        chunk = max(1, len(orders) // (8 * processes))
        for seen, done in pool.imap(_look_packed, orders, chunksize=chunk):
            seen.done = done.split("\n") if done else []
            yield seen


def _look_packed(order: Look) -> tuple[Seen, str]:
    """What was seen, with the many keys as one text, which goes between processes much faster."""
    seen = look(order)
    done, seen.done = "\n".join(seen.done), []
    return seen, done
