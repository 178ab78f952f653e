"""Checks of the work of a run against the files it names: table, fields, inputs, adapter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from milepost.config.adapters import adapter_names, check_adapter
from milepost.config.command import BUILTIN_FIELDS, CommandTemplate
from milepost.config.inputs import glob_files
from milepost.config.needs import awaits
from milepost.config.schema import Problem, neighbour, shown
from milepost.config.tasks import read_header
from milepost.config.template import field_names
from milepost.config.view import View
from milepost.errors import ConfigError

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STAGE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_WANTS = {"batch": ("command", "function"), "resumable": ("command",), "stages": ("stages",)}


def table_of(run: View) -> View | None:
    """Where the table is named, by the kind of work."""
    kind = run.text("work", "kind")
    if kind not in _WANTS:
        return None
    return run.at("work", "tasks" if kind == "batch" else "members")


def needed_by(run: View) -> list[str]:
    """The runs that a run names as needed."""
    return [name for place in run.items("needs") if (name := place.text()) is not None]


def _shape(run: View, root: Path) -> Iterator[Problem]:
    """The keys of `work` fit its kind."""
    work, kind = run.at("work"), run.text("work", "kind")
    table = table_of(run)
    if kind is None or table is None:
        return
    other = work.at("members" if kind == "batch" else "tasks")
    if table.data is None:
        renamed = f"rename {other.name} to it" if other.data else "a CSV with a header (path)"
        yield table.wrong(f"is missing; kind {kind} has one: {renamed}")
    elif other.data is not None:
        yield other.wrong(f"does not belong to kind {kind}, which has {table.name}; remove it")
    wanted = _WANTS[kind]
    given = [key for key in ("command", "function", "stages") if work.has(key)]
    for key in given:
        if key not in wanted:
            yield work.at(key).wrong(f"does not belong to kind {kind}; expected {_either(wanted)}")
    if not given:
        yield work.at(wanted[0]).wrong(f"is missing; kind {kind} has {_either(wanted)}")
    elif len(set(given) & set(wanted)) > 1:
        yield work.at("function").wrong("stands beside command; expected one of the two")


def _either(keys: tuple[str, ...]) -> str:
    return " or ".join(keys)


def _table(run: View, root: Path) -> Iterator[Problem]:
    table = table_of(run)
    name = None if table is None else table.text()
    if table is None or name is None or awaits(name, needed_by(run), root):
        return
    try:
        read_header(root / name)
    except ConfigError as error:
        yield table.wrong(f"{shown(name)} {error.what}")


def _columns(run: View, root: Path) -> list[str] | None:
    table = table_of(run)
    name = None if table is None else table.text()
    if name is None or awaits(name, needed_by(run), root):
        return None
    try:
        return read_header(root / name)
    except ConfigError:
        return None  # reported by _table


def _commands(run: View, root: Path) -> Iterator[Problem]:
    """Commands can be filled safely, and their fields are columns of the table."""
    columns = _columns(run, root)
    commands = [run.at("work", "command"), *(s.at("command") for s in run.items("work", "stages"))]
    for place in commands:
        if (text := place.text()) is None:
            continue
        try:
            fields = CommandTemplate.parse(text).fields
        except ConfigError as error:
            yield place.wrong(error.what + (f" ({error.fix})" if error.fix else ""))
            continue
        yield from _unknown_fields(place, fields, columns)


def _paths(run: View, root: Path) -> Iterator[Problem]:
    """Names of outputs stay inside and use known fields; so do the smoke test and the planner."""
    columns = _columns(run, root)
    outputs = [out for stage in run.items("work", "stages") for out in stage.items("outputs")]
    artifacts = [artifact.at("path") for artifact in run.items("artifacts")]
    for place in [
        *outputs,
        *artifacts,
        run.at("work", "result", "file"),
        run.at("control", "file"),
    ]:
        if (text := place.text()) is None:
            continue
        if text.startswith("/") or ".." in Path(text).parts:
            yield place.wrong(f"{shown(text)} leaves its folder; expected a path below {{out}}")
            continue
        try:
            fields = field_names(text)
        except ConfigError as error:
            yield place.wrong(error.what)
            continue
        yield from _unknown_fields(place, fields, columns)
    for place in run.items("smoke", "set"):
        yield from _unknown_fields(place, (place.name,), columns)
    size = run.at("planner", "size")
    if (name := size.text()) is not None and columns is not None and name not in columns:
        yield size.wrong(f"{shown(name)} is no column of the table; {neighbour(name, columns)}")


def _unknown_fields(
    place: View, fields: tuple[str, ...], columns: list[str] | None
) -> Iterator[Problem]:
    if columns is None:
        return
    for name in fields:
        if name not in columns and name not in BUILTIN_FIELDS:
            hint = neighbour(name, [*columns, *BUILTIN_FIELDS])
            yield place.wrong(f"field {{{name}}} is no column of the table; {hint}")


def _function(run: View, root: Path) -> Iterator[Problem]:
    place = run.at("work", "function")
    text = place.text()
    if text is not None and not _FUNCTION.fullmatch(text):
        yield place.wrong(f"{shown(text)} is not like package.module:name")


def _stages(run: View, root: Path) -> Iterator[Problem]:
    seen: set[str] = set()
    for stage in run.items("work", "stages"):
        name = stage.text("name")
        if name is None:
            continue
        if not _STAGE.fullmatch(name):
            yield stage.at("name").wrong(
                f"{shown(name)} is no name for a stage; expected a-z, 0-9 and single hyphens"
            )
        if name in seen:
            yield stage.at("name").wrong(f"{shown(name)} is there twice; expected another name")
        seen.add(name)


def _adapter(run: View, root: Path) -> Iterator[Problem]:
    place = run.at("work", "adapter")
    name = place.text()
    if name is None:
        return
    if name not in adapter_names():
        yield place.wrong(f"there is no adapter {name!r}; {neighbour(name, adapter_names())}")
        return
    try:
        check_adapter(name)
    except ConfigError as error:
        yield place.wrong(error.what)


def _files(run: View, root: Path) -> Iterator[Problem]:
    """Files and globs that are named do exist."""
    for place in run.items("work", "inputs"):
        text = place.text()
        if text is None or awaits(text, needed_by(run), root):
            continue
        if not glob_files(root, text):
            yield place.wrong(f"{shown(text)} matches no file below the folder of the workflow")
    for place in (run.at("planner", "profiles"), run.at("privacy", "public_note")):
        text = place.text()
        if text is None or awaits(text, needed_by(run), root):
            continue
        if not (root / text).is_file():
            yield place.wrong(f"there is no file {shown(text)}; write it, or leave the key out")


def _environment(run: View, root: Path) -> Iterator[Problem]:
    for place in run.items("work", "environment"):
        if not _VARIABLE.fullmatch(place.name):
            yield place.wrong(f"{place.name!r} is no name for an environment variable")
        elif place.name.startswith("MILEPOST_"):
            yield place.wrong("names that begin with MILEPOST_ are set by milepost itself")


WORK_CHECKS: tuple[Callable[[View, Path], Iterator[Problem]], ...] = (
    _shape,
    _table,
    _commands,
    _paths,
    _function,
    _stages,
    _adapter,
    _files,
    _environment,
)
