"""Read the frozen shard table in one pass, without an object per task.

`shards.csv` has the columns `shard,task,line,params,profile,mode`. Names and keys need no quotes
and compact JSON has no line breaks, so a line is one row and its first two fields end at the
commas.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Container, Iterator
from itertools import groupby
from pathlib import Path

from milepost.errors import DataError
from milepost.shardtable import FIRST_HEADER, HEADER

BLOCK_BYTES = 1 << 16
"""So much of the table is split at once: small enough for the caches of a processor."""


def read_shards(path: Path) -> dict[str, list[str]]:
    """Shard name -> task keys, both in the order of the table."""
    shards: dict[str, list[str]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        _check_header(stream.readline(), path)
        number = 2
        while lines := stream.readlines(BLOCK_BYTES):
            try:
                names, keys, _ = zip(*[line.split(",", 2) for line in lines], strict=True)
            except ValueError as error:
                bad = next(i for i, line in enumerate(lines) if line.count(",") < 2)
                raise _broken(path, number + bad) from error
            if not lines[-1].endswith("\n"):
                raise _broken(path, number + len(lines) - 1)
            begin = 0
            for name, same in groupby(names):
                end = begin + sum(1 for _ in same)
                shards.setdefault(name, []).extend(keys[begin:end])
                begin = end
            number += len(lines)
    return shards


def stream_tasks(path: Path) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Every row as (shard, task key, parameters), streaming."""
    for number, line in _lines(path):
        try:
            name, key, _, params = next(csv.reader((line,)))[:4]
            yield name, key, json.loads(params)
        except ValueError as error:
            raise _broken(path, number) from error


def parameters(path: Path, keys: Container[str]) -> dict[str, dict[str, str]]:
    """The parameters of the tasks in `keys`; only their rows are parsed."""
    found: dict[str, dict[str, str]] = {}
    for number, line in _lines(path):
        if line.split(",", 2)[1] in keys:
            try:
                _, key, _, params = next(csv.reader((line,)))[:4]
                found[key] = json.loads(params)
            except ValueError as error:
                raise _broken(path, number) from error
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        _check_header(stream.readline(), path)
        for number, line in enumerate(stream, start=2):
            if not line.endswith("\n"):
                raise _broken(path, number)
            yield number, line


def _check_header(line: str, path: Path) -> None:
    header = line.rstrip("\r\n")
    if header not in (",".join(HEADER), ",".join(FIRST_HEADER)):
        raise DataError(
            f"has the header {header!r} instead of {','.join(HEADER)!r}",
            where=path,
            fix="restore the shard table from results/ or from a backup",
        )


def _broken(path: Path, number: int) -> DataError:
    return DataError(
        "is not a row of the shard table",
        where=f"{path}:{number}",
        fix="restore the shard table from results/ or from a backup",
    )
