"""Read everything on disk about a run, whether its head lives or not, and judge nothing.

Whatever is missing or damaged is named in the evidence instead of ending the look.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from milepost.clock import epoch
from milepost.config.contract import parse_contract, read_contract
from milepost.durable import read_json
from milepost.errors import ConfigError, DataError
from milepost.evidence.columns import no_collector
from milepost.evidence.table import read_shards, stream_tasks
from milepost.evidence.types import (
    AttemptEvidence,
    RunEvidence,
    ShardEvidence,
    TaskProblem,
)
from milepost.evidence.witness import Look, Seen, look_at_all
from milepost.evidence.words import plural
from milepost.lease import Holder, read_holder
from milepost.model import WorkKind
from milepost.paths import RunPaths
from milepost.shardtable import Place, read_places

PARALLEL_BYTES = 16 << 20
"""Journals of less than this together are read by one process."""


def gather(paths: RunPaths, *, deep: bool = False) -> RunEvidence:
    """Everything on disk about a run; `deep` compares digests besides sizes.

    Raises ConfigError when there is nothing at all under the run's name.
    """
    if not paths.work.is_dir() and not paths.results.is_dir():
        raise ConfigError(
            f"there is no run {paths.run!r}",
            where=paths.root.resolve(),
            fix="look into results/ for the names of runs, or start it: snakemake -c2",
        )
    notes: list[str] = []
    contract = _contract(paths, notes)
    spec = None if contract is None else parse_contract(contract).spec
    submission = _first_json((paths.frozen_submission, paths.submission), notes)
    with no_collector():
        path, table = _table(paths, submission, deep, notes)
        orders = _orders(paths, table, spec, deep)
        seen = {one.name: one for one in look_at_all(orders, _processes(orders))}
        if path is None and seen:
            notes.append("no whole shard table is left: only tasks that a journal names are known")
            table = {name: sorted(one.keys()) for name, one in seen.items()}
        shards = tuple(_shards(paths, table, seen, path is not None))
        older = tuple(_shards(paths, {name: [] for name in seen if name not in table}, seen, True))
    plan = _first_json((paths.plan,), notes)
    return RunEvidence(
        paths=paths,
        spec=spec,
        contract=contract,
        submission=submission,
        smoke=_first_json((paths.smoke,), notes),
        plan=plan,
        places=_places(path, plan, submission),
        table=path,
        shards=shards,
        older=tuple(shard for shard in older if shard.attempts),
        deep=deep,
        notes=tuple(notes),
    )


def _contract(paths: RunPaths, notes: list[str]) -> Mapping[str, Any] | None:
    """The contract as it was frozen, not today's configuration; the published one if need be."""
    for path in (paths.frozen_contract, paths.contract):
        if path.exists():
            try:
                contract = read_contract(path)
                parse_contract(contract)
                return contract
            except (DataError, OSError) as error:
                notes.append(str(error))
    notes.append("there is no contract: what was expected is not known")
    return None


def _first_json(candidates: Iterable[Path], notes: list[str]) -> Any:
    for path in candidates:
        value = _json(path, notes)
        if value is not None:
            return value
    return None


def _json(path: Path, notes: list[str]) -> Any:
    try:
        value = read_json(path)
        if isinstance(value, dict):
            return value
        raise DataError("is not a JSON object", where=path)
    except FileNotFoundError:
        return None
    except (DataError, OSError) as error:
        notes.append(f"{path} cannot be read: {error}")
        return None


def _table(
    paths: RunPaths, submission: Mapping[str, Any] | None, deep: bool, notes: list[str]
) -> tuple[Path | None, dict[str, list[str]]]:
    """The frozen shard table, else the published one; one that lost rows is not believed.

    `deep` parses the parameters of every row, too.
    """
    wanted = None if submission is None else submission.get("tasks")
    for path in (paths.frozen_shards, paths.shards):
        try:
            table = read_shards(path)
            if deep:
                collections.deque(stream_tasks(path), maxlen=0)
        except FileNotFoundError:
            continue
        except (DataError, OSError, UnicodeDecodeError) as error:
            notes.append(f"{path} cannot be read: {error}")
            continue
        count = sum(map(len, table.values()))
        if wanted in (None, count):
            return path, table
        notes.append(f"{path} has {count} tasks, {wanted} were submitted")
    return None, {}


def _places(
    table: Path | None, plan: Mapping[str, Any] | None, submission: Mapping[str, Any] | None
) -> Mapping[str, Place]:
    """Where each shard is; not read when all of them are in one place."""
    records = [
        *((plan or {}).get("placement") or ()),
        *((submission or {}).get("placements") or ()),
    ]
    known = {(one.get("profile"), one.get("mode")) for one in records}
    return {} if table is None or len(known) < 2 else read_places(table)


def _orders(paths: RunPaths, table: Mapping[str, list[str]], spec: Any, deep: bool) -> list[Look]:
    """One order for each shard of the table and for each older shard that left a journal."""
    names = dict.fromkeys(table)
    for folder in (paths.work / "shards", paths.results / "shards"):
        if folder.is_dir():
            names.update(dict.fromkeys(sorted(e.name for e in os.scandir(folder) if e.is_dir())))
    batch = spec is None or spec.work.kind is WorkKind.BATCH
    expected = () if spec is None else tuple(a.path for a in spec.artifacts if _is_plain(a.path))
    return [
        Look(name, _journals(paths, name), paths.artifacts, batch, expected, deep) for name in names
    ]


def _is_plain(path: str) -> bool:
    return not any(c in path for c in "{}*?[]")


def _journals(paths: RunPaths, name: str) -> tuple[Path, ...]:
    """The live journal; the marker too when it is the only one or has something else to say."""
    shard = paths.shard(name)
    live, marker = _size(shard.journal), _size(shard.marker)
    if live is None:
        return () if marker is None else (shard.marker,)
    return (shard.journal,) if marker in (None, live) else (shard.journal, shard.marker)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _processes(orders: list[Look]) -> int:
    total = sum(_size(p) or 0 for order in orders for p in order.journals[:1])
    return 1 if total < PARALLEL_BYTES else len(os.sched_getaffinity(0))


def _shards(
    paths: RunPaths, table: Mapping[str, list[str]], seen: Mapping[str, Seen], in_table: bool
) -> Iterable[ShardEvidence]:
    elsewhere = _Elsewhere(seen)
    for name, tasks in table.items():
        one = _shard(paths, seen[name], tasks, elsewhere)
        yield one if in_table else replace(one, in_table=False)


class _Elsewhere:
    """What the journals of all shards say about a task; put together when it is first needed.

    Most shards did all of their own tasks, and need not ask.
    """

    def __init__(self, seen: Mapping[str, Seen]) -> None:
        self._seen = seen

    @cached_property
    def done(self) -> Mapping[str, str]:
        """Task -> the shard whose journal calls it done; the last one of several."""
        return {key: name for name, one in self._seen.items() for key in one.done}

    @cached_property
    def damaged(self) -> Mapping[str, TaskProblem]:
        ways = (p for one in self._seen.values() for p in one.damaged)
        return {p.key: p for p in ways if p.key not in self.done}

    @cached_property
    def failed(self) -> Mapping[str, TaskProblem]:
        return {p.key: p for one in self._seen.values() for p in one.failed}


def _shard(paths: RunPaths, seen: Seen, tasks: list[str], elsewhere: _Elsewhere) -> ShardEvidence:
    files = paths.shard(seen.name)
    lost = list(seen.lost)
    own = set(seen.done)
    not_own = [] if own.issuperset(tasks) else [key for key in tasks if key not in own]
    done = {k: elsewhere.done[k] for k in not_own if k in elsewhere.done}
    open_ = [key for key in not_own if key not in done]
    damaged = [elsewhere.damaged[k] for k in open_ if k in elsewhere.damaged]
    bad = {p.key for p in damaged}
    failed = [elsewhere.failed[k] for k in open_ if k not in bad and k in elsewhere.failed]
    bad.update(p.key for p in failed)
    missing = tuple(k for k in open_ if k not in bad)
    holder = _holder(files.lease, lost)
    attempts = _attempts(files.attempts, seen.last_signs, lost)
    return ShardEvidence(
        name=seen.name,
        tasks=tuple(tasks),
        done=len(tasks) - len(open_),
        failed=tuple(failed),
        damaged=tuple(damaged),
        missing=missing,
        elsewhere=done,
        strays=0 if seen.rows else sum(paths.artifact(name).is_dir() for name in missing),
        started=seen.started or files.attempts.is_dir(),
        rows=seen.rows,
        damaged_rows=seen.damaged_rows,
        attempts=tuple(_with_running(attempts, holder)),
        checkpoints=tuple(seen.checkpoints),
        task_s=seen.seconds / len(seen.done) if seen.done else None,
        holder=holder,
        upload=_json(files.upload, lost),
        marker=files.marker.is_file(),
        notes=tuple(_notes(seen)),
        lost=tuple(lost),
    )


def _notes(seen: Seen) -> Iterable[str]:
    if seen.torn:
        yield "the journal's last row is torn (cut at the next start)"
    if seen.damaged_rows:
        yield f"{plural(seen.damaged_rows, 'damaged journal row')} not counted"
    if seen.superseded:
        yield f"{plural(seen.superseded, 'row')} of superseded attempts not counted"


def _with_running(
    attempts: Iterable[AttemptEvidence], holder: Holder | None
) -> Iterable[AttemptEvidence]:
    """Mark the attempt that holds the lease, unless its process is known to be gone."""
    held = None if holder is None or holder.is_alive() is False else holder.attempt
    for attempt in attempts:
        yield replace(attempt, running=True) if attempt.number == held else attempt


def _holder(path: Path, lost: list[str]) -> Holder | None:
    try:
        holder = read_holder(path)
        if holder is not None:
            holder.age_s()  # a heartbeat that is no time cannot be judged
        return holder
    except (DataError, OSError, ValueError) as error:
        lost.append(f"attempts beside {path}: {error}")
        return None


def _attempts(
    folder: Path, last_signs: Mapping[int, str], lost: list[str]
) -> Iterable[AttemptEvidence]:
    if not folder.is_dir():
        return
    numbers = (int(p.stem) for p in folder.glob("*.json") if p.stem.isdigit())
    for number in sorted(numbers):
        value = _json(folder / f"{number}.json", lost)
        try:
            if value is not None:
                yield _attempt(number, value, last_signs.get(number))
        except (AttributeError, TypeError, ValueError) as error:
            lost.append(f"{folder / f'{number}.json'}: is not an attempt record ({error})")


def _attempt(number: int, value: Mapping[str, Any], last_sign: str | None) -> AttemptEvidence:
    same = ("started", "ended", "exit_code", "stop", "finding", "useful_s", "checkpoint_s")
    more = ("lost_s", "cpu_s", "max_rss_bytes", "slurm_job_id", "restored", "host")
    known: dict[str, Any] = {k: value.get(k) for k in (*same, *more)}
    for name in ("started", "ended"):
        if value.get(name) is not None:
            epoch(value[name])
    done = (value.get("counts") or {}).get("done")
    signs = [sign for sign in (last_sign, value.get("last_sign")) if sign is not None]
    seen = max(signs, key=epoch, default=None)
    return AttemptEvidence(number=number, done=done, last_sign=seen, **known)
