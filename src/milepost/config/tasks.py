"""The task table: a CSV whose rows are tasks and whose columns are the fields of the command."""

from __future__ import annotations

import contextlib
import csv
import gc
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quote
from pathlib import Path
from typing import TextIO

from milepost.config.command import BUILTIN_FIELDS, CommandTemplate
from milepost.config.spec import RunSpec, WorkSpec
from milepost.config.template import field_names
from milepost.errors import ConfigError
from milepost.model import Task

KEY_DIGITS = 16
_SHOWN = 10


def task_key(params: Mapping[str, str]) -> str:
    """Key of a task: 16 hexadecimal digits of SHA-256 over its parameters as JSON, names sorted."""
    return _key_maker(list(params))(list(params.values()))


def read_header(path: Path) -> list[str]:
    """The column names of a table; ConfigError when they cannot be fields."""
    with _open(path) as stream:
        return _header(path, _rows(path, stream))


def read_tasks(path: Path, spec: RunSpec | None = None) -> list[Task]:
    """Read a table; values are the strings as written, the order is that of the file.

    The columns that the work of `spec` needs must be there. ConfigError names the lines that are
    ragged or that repeat an earlier row, and a table without rows.
    """
    tasks: list[Task] = []
    lines: dict[str, int] = {}
    wrong: list[str] = []
    with _open(path) as stream, _paused_collector():
        rows = _rows(path, stream)
        names = _header(path, rows)
        _check_fields(path, names, () if spec is None else work_fields(spec.work))
        key_of, width = _key_maker(names), len(names)
        for line, row in rows:
            if len(row) != width:
                values = "1 value" if len(row) == 1 else f"{len(row)} values"
                wrong.append(f"line {line} has {values}, the header has {width}")
                continue
            if "\0" in "".join(row):
                wrong.append(f"line {line} holds a NUL, which no command can take")
                continue
            key = key_of(row)
            if (first := lines.setdefault(key, line)) != line:
                wrong.append(f"line {line} repeats line {first}")
            tasks.append(Task(key, dict(zip(names, row, strict=False)), line))
    _refuse(path, wrong, tasks)
    return tasks


def row_size(task: Task, column: str) -> float:
    """The work of a row as its column says it; ConfigError when that is no number above 0."""
    text = task.params[column]
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise ConfigError(
            f"column {column} holds {text!r} in line {task.line}, not a number above 0",
            where="planner.size",
            fix="mend the table, or name another column",
        )
    return value


def work_fields(work: WorkSpec) -> tuple[str, ...]:
    """The fields that the commands and outputs of `work` use, without those milepost fills in."""
    texts = [work.command] if work.command else [stage.command for stage in work.stages]
    names = [name for text in texts for name in CommandTemplate.parse(text).fields]
    names += [name for stage in work.stages for out in stage.outputs for name in field_names(out)]
    return tuple(name for name in dict.fromkeys(names) if name not in BUILTIN_FIELDS)


def _key_maker(names: Sequence[str]) -> Callable[[Sequence[str]], str]:
    """A fast function from the values of a row to its key; independent of the column order."""
    order = sorted(range(len(names)), key=names.__getitem__)
    fields = (quote(names[at]).replace("%", "%%") + ":%s" for at in order)
    pattern = "{" + ",".join(fields) + "}"
    sha256, encode = hashlib.sha256, quote

    def key(row: Sequence[str]) -> str:
        text = pattern % tuple([encode(row[at]) for at in order])
        return sha256(text.encode("ascii")).hexdigest()[:KEY_DIGITS]

    return key


@contextlib.contextmanager
def _paused_collector() -> Iterator[None]:
    """Spare the garbage collector a million rows that all stay: a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _open(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise ConfigError(
            f"the table cannot be read ({error.strerror})",
            where=path,
            fix="write the table there or mend its path in `work`",
        ) from error


def _rows(path: Path, stream: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Line number (of the row's first line) and values; blank lines are passed over."""
    reader = csv.reader(stream, strict=True)
    line = 1
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(
            f"is not CSV ({error})", where=f"{path}:{line}", fix="mend the quotes in that line"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"is not UTF-8 (byte {error.object[error.start]:#04x} after line {line})",
            where=path,
            fix="save the table as UTF-8",
        ) from error


def _header(path: Path, rows: Iterator[tuple[int, list[str]]]) -> list[str]:
    _, names = next(rows, (1, []))
    for name in names:
        problem = _name_problem(name, names)
        if problem:
            raise ConfigError(
                f"column {name!r} {problem}", where=f"{path}:1", fix="mend the header"
            )
    if not names:
        raise ConfigError(
            "the table is empty", where=path, fix="write a header and one row for each task"
        )
    for character, name in ((";", ";"), ("\t", "a tab")):
        if len(names) == 1 and character in names[0]:
            raise ConfigError(
                f"is separated by {name}", where=f"{path}:1", fix="separate by commas"
            )
    return names


def _name_problem(name: str, names: Sequence[str]) -> str | None:
    if not name:
        return "has no name"
    if name != name.strip():
        return "has spaces around its name"
    if names.count(name) > 1:
        return "is there twice"
    if name in BUILTIN_FIELDS:
        return "has a name that milepost fills in itself"
    return None


def _check_fields(path: Path, names: Sequence[str], fields: Sequence[str]) -> None:
    missing = [name for name in fields if name not in names and name not in BUILTIN_FIELDS]
    if missing:
        raise ConfigError(
            f"has no column {', '.join(missing)} (it has {', '.join(names)})",
            where=path,
            fix="add the column, or mend the field in the command",
        )


def _refuse(path: Path, wrong: Sequence[str], tasks: Sequence[Task]) -> None:
    if wrong:
        more = [f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
        count = "1 wrong row" if len(wrong) == 1 else f"{len(wrong)} wrong rows"
        raise ConfigError(
            "\n  ".join([f"{count}:", *wrong[:_SHOWN], *more]),
            where=path,
            fix="mend or remove these lines; each row must be there once, with a value per column",
        )
    if not tasks:
        raise ConfigError("the table has no rows", where=path, fix="write one row for each task")
