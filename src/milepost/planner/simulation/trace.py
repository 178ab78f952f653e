"""Failures that were recorded: a CSV file with a header, plain or compressed (.xz, .gz, .bz2).

One row a failure. A column of gaps (`gap_s`: seconds since the failure before), or one of times:
ISO 8601, seconds, or month/day/year hour:minute, in any order.
"""

from __future__ import annotations

import csv
import datetime as dt
import difflib
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from milepost.errors import ConfigError, DataError
from milepost.planner.simulation.failures import Replay

GAPS = ("gap_s", "gap")
TIMES = ("time", "time_s", "timestamp", "started", "start", "prob started")
"""Names that a column of times may have without being told, whatever their case."""

_AMERICAN = "%m/%d/%Y %H:%M"
_LEAST_APART_S = 1.0
"""Failures that are nearer to each other are one event."""


def read_trace(
    path: Path,
    column: str | None = None,
    only: Mapping[str, str] | None = None,
    from_start: bool = False,
) -> Replay:
    """The failures of a file, those whose columns have the values of `only`.

    `column` names the column of times or gaps (one that begins with "gap" holds gaps); None: the
    one with a usual name. An unknown column is a ConfigError; a cell that is no time, or fewer
    than two failures, a DataError.
    """
    rows = csv.DictReader(io.StringIO(_text(path), newline=""))
    names = [name for name in rows.fieldnames or [] if name]
    found = _column(names, column, path)
    wanted = {_named(names, name, path): value for name, value in (only or {}).items()}
    is_gap = found.lower().startswith("gap")
    values = list(_values(rows, found, wanted, is_gap, path))
    times_s = np.cumsum(values) if is_gap else np.sort(np.asarray(values))
    apart = np.diff(times_s, prepend=-math.inf) >= _LEAST_APART_S
    times_s = times_s[apart]
    if len(times_s) < 2:
        raise DataError(
            f"has {len(values)} failures{_said(wanted)}, too few to replay",
            where=path,
            fix="use a record of two failures or more, at different times",
        )
    times_s = times_s - times_s[0]
    # The circle is closed by one more gap: the first one told, else the mean of the others.
    closing_s = values[0] if is_gap else float(times_s[-1]) / (len(times_s) - 1)
    return Replay(times_s, float(times_s[-1]) + max(closing_s, _LEAST_APART_S), from_start)


def _text(path: Path) -> str:
    import bz2
    import gzip
    import lzma

    packers: dict[str, Any] = {".xz": lzma, ".gz": gzip, ".bz2": bz2}
    try:
        data = path.read_bytes()
        packer = packers.get(path.suffix)
        return (data if packer is None else packer.decompress(data)).decode()
    except FileNotFoundError as error:
        raise ConfigError("there is no such trace", where=path, fix="mend the path") from error
    except (lzma.LZMAError, OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot be read ({error})", where=path, fix="use a CSV file in UTF-8"
        ) from error


def _column(names: Sequence[str], column: str | None, path: Path) -> str:
    if column is not None:
        return _named(names, column, path)
    for usual in (*GAPS, *TIMES):
        for name in names:
            if name.strip().lower() == usual:
                return name
    raise ConfigError(
        f"no column is called {' or '.join(GAPS[:1] + TIMES[:1])}; there are {', '.join(names)}",
        where=path,
        fix="name the column of times with --trace-column",
    )


def _named(names: Sequence[str], wanted: str, path: Path) -> str:
    if wanted in names:
        return wanted
    near = difflib.get_close_matches(wanted, names, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigError(
        f"has no column {wanted!r}", where=path, fix=f"{hint}use one of {', '.join(names)}"
    )


def _values(
    rows: csv.DictReader[str], column: str, wanted: Mapping[str, str], is_gap: bool, path: Path
) -> Iterator[float]:
    for row in rows:
        if any((row[name] or "").strip() != value for name, value in wanted.items()):
            continue
        text = (row[column] or "").strip()
        value = _seconds(text, is_gap)
        if value is None:
            raise DataError(
                f"{column} is {text!r}, not {'seconds' if is_gap else 'a time'}",
                where=f"{path}, line {rows.line_num}",
                fix="use seconds, ISO 8601, or month/day/year hour:minute",
            )
        yield value


def _seconds(text: str, is_gap: bool) -> float | None:
    """A number of seconds, or a time as seconds since the epoch; None when it is neither."""
    try:
        value = float(text)
        return value if math.isfinite(value) and not (is_gap and value < 0.0) else None
    except ValueError:
        if is_gap:
            return None
    for parse in (dt.datetime.fromisoformat, lambda t: dt.datetime.strptime(t, _AMERICAN)):
        try:
            moment = parse(text)
        except ValueError:
            continue
        return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()
    return None


def _said(wanted: Mapping[str, str]) -> str:
    return "".join(f" with {name} {value}" for name, value in wanted.items())
