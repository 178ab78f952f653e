"""One table of what every done task gave: results/<run>/results.csv.

Columns are `task,shard`, the parameters, and the keys of the results; rows stand in the order of
the shard table. A result that only repeats a parameter is left out; one that differs from the
parameter of the same name gets the column `result_<name>`.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from milepost.durable import atomic_file, read_json
from milepost.evidence.table import stream_tasks
from milepost.evidence.types import RunEvidence, ShardEvidence
from milepost.journal import read_journal
from milepost.model import WorkKind
from milepost.paths import RunPaths

FIRST_ROWS = 1000
"""So many rows are kept for the report."""
Record = dict[str, str]


@dataclass(frozen=True, slots=True)
class Merged:
    """What was written: `first` holds the first rows, `best` the best one by the named column.

    `tied_count` other rows have the same value there; `best` is the first of them in the table.
    """

    columns: tuple[str, ...]
    row_count: int
    first: tuple[Record, ...]
    best: Record | None
    best_by: str | None
    tied_count: int


class _NewColumn(Exception):
    """A later row has a key that the header lacks."""


def merge(run: RunEvidence) -> Merged:
    """Write results.csv durably, streaming, and return what a report shows of it.

    The columns are those of the first row; a later row with more of them starts it anew.
    """
    columns = {"task": None, "shard": None}
    while True:
        try:
            return _write(run, columns)
        except _NewColumn:
            continue


def _write(run: RunEvidence, columns: dict[str, None]) -> Merged:
    first: list[Record] = []
    best = _Best(run)
    count = 0
    with atomic_file(run.paths.table) as stream:
        out = None
        for record in _records(run):
            if not record.keys() <= columns.keys():
                columns.update(dict.fromkeys(record))
                if out is not None:
                    raise _NewColumn
            if out is None:
                out = csv.DictWriter(stream, list(columns), lineterminator="\n")
                out.writeheader()
            out.writerow(record)
            best.see(record)
            count += 1
            if count <= FIRST_ROWS:
                first.append(record)
        if out is None:
            stream.write(",".join(columns) + "\n")
    return Merged(tuple(columns), count, tuple(first), best.record, best.by, best.tied_count)


class _Best:
    """Remembers the row with the largest (or smallest) number in the column the user named."""

    def __init__(self, run: RunEvidence) -> None:
        result = None if run.spec is None else run.spec.work.result
        self.by = None if result is None else result.best
        self._sign = -1.0 if result is not None and result.best_is == "min" else 1.0
        self._value = -math.inf
        self.record: Record | None = None
        self.tied_count = 0

    def see(self, record: Record) -> None:
        if self.by is None:
            return
        try:
            value = self._sign * float(record.get(self.by, ""))
        except ValueError:
            return  # a row without a number there cannot be the best
        if value > self._value:
            self._value, self.record, self.tied_count = value, record, 0
        elif value == self._value and self.record is not None:
            self.tied_count += 1


def _records(run: RunEvidence) -> Iterator[Record]:
    if run.table is None:
        return
    shards = {shard.name: shard for shard in run.shards}
    current, reader = "", None
    for name, key, params in stream_tasks(run.table):
        if reader is None or name != current:
            current, reader = name, _Reader(run, shards[name])
        result = reader.result(key)
        if result is not None:
            yield {"task": key, "shard": name} | params | _flat(result, params)


class _Reader:
    """Results of one shard's done tasks: from the journal, or from the result file."""

    def __init__(self, run: RunEvidence, shard: ShardEvidence) -> None:
        self._run, self._shard = run, shard
        problems = (p.key for p in (*shard.failed, *shard.damaged))
        self._open = {*shard.missing, *problems}
        self._rows: dict[str, Mapping[str, Any]] = {}

    def result(self, key: str) -> Mapping[str, Any] | None:
        """The result of a task, {} when it has none, None when the task is not done."""
        if key in self._open:
            return None
        owner = self._shard.elsewhere.get(key, self._shard.name)
        if owner not in self._rows:
            self._rows[owner] = _done_rows(self._run.paths, owner)
        row = self._rows[owner].get(key)
        data = {} if row is None else row.data
        return data.get("result") or self._from_file(key, owner)

    def _from_file(self, key: str, owner: str) -> Mapping[str, Any]:
        """The plain values of the result file, or else of the first artifact that is JSON."""
        spec = self._run.spec
        if spec is None:
            return {}
        name = spec.work.result.file
        if name is None and spec.work.kind is not WorkKind.BATCH:
            name = next((a.path for a in spec.artifacts if a.check == "json"), None)
        if name is None:
            return {}
        batch = spec.work.kind is WorkKind.BATCH
        path = self._run.paths.artifact(key if batch else owner) / name
        value = read_json(path) if os.path.exists(path) else {}
        if not isinstance(value, dict):
            return {}
        return {k: v for k, v in value.items() if not isinstance(v, list | dict)}


def _done_rows(paths: RunPaths, shard: str) -> dict[str, Any]:
    files = paths.shard(shard)
    rows: dict[str, Any] = {}
    for path in (files.marker, files.journal):
        rows |= read_journal(path).done
    return rows


def _flat(result: Mapping[str, Any], params: Mapping[str, str]) -> Record:
    """Scalars as text; lists and objects are compact JSON."""
    flat: Record = {}
    for name, value in result.items():
        text = _text(value)
        if name not in params:
            flat[name] = text
        elif not _same(text, params[name]):
            flat[f"result_{name}"] = text
    return flat


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict | list | bool):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return str(value)


def _same(text: str, parameter: str) -> bool:
    try:
        return text == parameter or float(text) == float(parameter)
    except ValueError:
        return False
