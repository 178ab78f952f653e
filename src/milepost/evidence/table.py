"""Read the frozen shard table in one pass, without an object per task.

`shards.csv` has the columns `shard,task,line,params`. Names and keys need no quotes and compact
JSON has no line breaks, so a line is one row and its first two fields end at the commas.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Container, Iterator
from pathlib import Path

from milepost.errors import DataError
from milepost.shardtable import HEADER


def read_shards(path: Path) -> dict[str, list[str]]:
    """Shard name -> task keys, both in the order of the table."""
    shards: dict[str, list[str]] = {}
    for number, line in _lines(path):
        try:
            name, key, _ = line.split(",", 2)
        except ValueError as error:
            raise _broken(path, number) from error
        if name in shards:
            shards[name].append(key)
        else:
            shards[name] = [key]
    return shards


def stream_tasks(path: Path) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Every row as (shard, task key, parameters), streaming."""
    for number, line in _lines(path):
        try:
            name, key, _, params = next(csv.reader((line,)))
            yield name, key, json.loads(params)
        except ValueError as error:
            raise _broken(path, number) from error


def parameters(path: Path, keys: Container[str]) -> dict[str, dict[str, str]]:
    """The parameters of the tasks in `keys`; only their rows are parsed."""
    found: dict[str, dict[str, str]] = {}
    for number, line in _lines(path):
        if line.split(",", 2)[1] in keys:
            try:
                _, key, _, params = next(csv.reader((line,)))
                found[key] = json.loads(params)
            except ValueError as error:
                raise _broken(path, number) from error
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        header = stream.readline().rstrip("\r\n")
        if header != ",".join(HEADER):
            raise DataError(
                f"has the header {header!r} instead of {','.join(HEADER)!r}",
                where=path,
                fix="restore the shard table from results/ or from a backup",
            )
        for number, line in enumerate(stream, start=2):
            if not line.endswith("\n"):
                raise _broken(path, number)
            yield number, line


def _broken(path: Path, number: int) -> DataError:
    return DataError(
        "is not a row of the shard table",
        where=f"{path}:{number}",
        fix="restore the shard table from results/ or from a backup",
    )
