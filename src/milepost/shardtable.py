"""The frozen table of shards: which task belongs to which shard.

One CSV row a task: `shard,task,line,params,profile,mode`, the parameters as a JSON object, and
where the shard was placed (empty: nowhere in particular). A shard's name has at least four digits
and is never used for other tasks again. A table of an earlier version ends with `params`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from milepost.durable import atomic_file
from milepost.errors import DataError
from milepost.model import Shard, Task

csv.field_size_limit(1 << 30)  # of a value that a table may hold its JSON is longer
HEADER = ("shard", "task", "line", "params", "profile", "mode")
FIRST_HEADER = HEADER[:4]

Place = tuple[str | None, str | None]
"""Profile and mode of a shard; None: nowhere in particular."""


def shard_name(number: int) -> str:
    """Name of the shard with this number, such as 0007."""
    return f"{number:04d}"


def write_shards(path: Path, shards: Iterable[Shard]) -> None:
    """Write the table durably; the same shards give the same bytes."""
    with atomic_file(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(HEADER)
        for shard in shards:
            writer.writerows(
                (
                    shard.name,
                    task.key,
                    task.line,
                    json.dumps(dict(task.params), sort_keys=True),
                    shard.profile,
                    shard.mode,
                )
                for task in shard.tasks
            )


def read_shards(path: Path) -> dict[str, Shard]:
    """All shards by name, in the order of the table; a missing table is empty."""
    tasks: dict[str, list[Task]] = {}
    places: dict[str, Place] = {}
    for name, task, place in _rows(path, None):
        tasks.setdefault(name, []).append(task)
        places[name] = place
    return {name: Shard(name, tuple(members), *places[name]) for name, members in tasks.items()}


def read_shard(path: Path, name: str) -> Shard:
    """One shard; the other rows are passed over unread. DataError when it is not there."""
    rows = list(_rows(path, name))
    if not rows:
        raise DataError(
            f"there is no shard {name!r}", where=path, fix="see its first column for the names"
        )
    return Shard(name, tuple(task for _, task, _ in rows), *rows[0][2])


def read_places(path: Path) -> dict[str, Place]:
    """Where each shard was placed, from its first row; a missing table has none."""
    places: dict[str, Place] = {}
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            next(stream, None)
            for line in stream:
                name = line.partition(",")[0]
                if name not in places:
                    places[name] = _place(next(csv.reader((line,))))
    except FileNotFoundError:
        pass
    return places


def shard_names(path: Path) -> list[str]:
    """The names in order, without reading the parameters; a missing table has none."""
    try:
        with path.open(encoding="utf-8") as stream:
            next(stream, None)
            return list(dict.fromkeys(line.partition(",")[0] for line in stream))
    except FileNotFoundError:
        return []


def _rows(path: Path, only: str | None) -> Iterator[tuple[str, Task, Place]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    lines = io.StringIO(text)
    if next(lines, "").strip() not in (",".join(HEADER), ",".join(FIRST_HEADER)):
        raise DataError("is not a shard table", where=path, fix="run `milepost submit` again")
    wanted = lines if only is None else (line for line in lines if line.startswith(f"{only},"))
    for row in csv.reader(wanted):
        name, key, line, params = row[:4]
        yield name, Task(key, json.loads(params), int(line)), _place(row)


def _place(row: list[str]) -> Place:
    profile, mode = row[4:] or ("", "")
    return profile or None, mode or None
