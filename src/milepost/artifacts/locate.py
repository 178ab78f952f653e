"""From the path in a check to the files it means, none of which may lie outside the folder."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping

from milepost.errors import ConfigError, DataError, StorageError
from milepost.model import ArtifactCheck

_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MAGIC = re.compile(r"[*?\[]")


def fill(template: str, fields: Mapping[str, str], *, escape: bool = False) -> str:
    """Put the values of `fields` for `{name}`; with `escape`, safe inside a glob pattern."""
    if "{" not in template:
        return template

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in fields:
            raise ConfigError(
                f"no field {name!r} in the task table for {template!r}",
                where="artifacts",
                fix=f"use one of: {', '.join(sorted(fields)) or 'the table has no columns'}",
            )
        text = str(fields[name])
        return re.sub(r"([*?\[])", r"[\1]", text) if escape else text

    return _FIELD.sub(value, template)


def locate(
    root: str, check: ArtifactCheck, fields: Mapping[str, str], *, into_folders: bool
) -> list[tuple[str, str]]:
    """Files that the check is for, as (name below root, path), sorted by name.

    A folder stands for all files below it where `into_folders`. Raises DataError when there is
    none, when one is neither file nor folder, or when one leaves `root`.
    """
    is_pattern = _MAGIC.search(check.path) is not None
    wanted = fill(check.path, fields, escape=is_pattern)
    names = _matches(root, wanted) if is_pattern else [wanted]
    found = [pair for name in names for pair in _files(root, name, into_folders and not is_pattern)]
    minimum = int(check.options.get("min_files", 1)) if check.options else 1
    if len(found) < minimum:
        raise DataError(
            f"{len(found)} files match {wanted!r}, {minimum} expected",
            where=root,
            fix="look into the log of the task: it ended without writing them",
        )
    return found


def _matches(root: str, pattern: str) -> list[str]:
    import glob

    _inside(root, pattern)
    names = glob.glob(pattern, root_dir=root, recursive=True)
    return sorted(name for name in names if not os.path.isdir(os.path.join(root, name)))


def _files(root: str, name: str, into_folders: bool) -> Iterator[tuple[str, str]]:
    path = _inside(root, name)
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        dangling = os.path.islink(path)
        raise DataError(
            "is a link to nothing" if dangling else "is missing",
            where=path,
            fix="look into the log of the task: it ended without writing this file",
        ) from error
    except OSError as error:
        raise StorageError(f"cannot be looked at: {error.strerror}", where=path) from error
    if "/" in name or os.path.islink(path):
        _really_inside(root, path)
    if stat.S_ISREG(mode):
        yield os.path.normpath(name), path
    elif stat.S_ISDIR(mode) and into_folders:
        yield from _below(root, name, path)
    else:
        kind = "a folder" if stat.S_ISDIR(mode) else "neither a file nor a folder"
        raise DataError(f"is {kind}, not a file", where=path, fix="name a file in `artifacts`")


def _below(root: str, name: str, path: str) -> Iterator[tuple[str, str]]:
    names = sorted(
        os.path.join(folder, file) for folder, _, files in os.walk(path) for file in files
    )
    if not names:
        raise DataError("is an empty folder", where=path, fix="look into the log of the task")
    for found in names:
        yield from _files(root, os.path.join(name, os.path.relpath(found, path)), False)


def _inside(root: str, name: str) -> str:
    path = os.path.join(root, name)
    if name.startswith("/") or (".." in name and _leaves(name)):
        raise DataError(
            f"path {name!r} leaves its folder", where=root, fix="use a path below the folder"
        )
    return path


def _leaves(name: str) -> bool:
    plain = os.path.normpath(name)
    return plain == ".." or plain.startswith("../")


def _really_inside(root: str, path: str) -> None:
    real, real_root = os.path.realpath(path), os.path.realpath(root)
    if real != real_root and not real.startswith(real_root + os.sep):
        raise DataError(
            f"is a link to {real}, outside its folder",
            where=path,
            fix="write the file itself: a link is not published with the artifacts",
        )
