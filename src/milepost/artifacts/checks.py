"""Run one check on every file it is for, and prove what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from milepost.artifacts import archives, bgzf, contents, hdf5
from milepost.artifacts.locate import locate
from milepost.artifacts.proofs import prove
from milepost.errors import ConfigError, DataError, StorageError
from milepost.model import ArtifactCheck, FileProof

Checker = Callable[[contents.Artifact], None]

_CHECKERS: dict[str, tuple[Checker, frozenset[str]]] = {
    "exists": (contents.exists, frozenset()),
    "nonempty": (contents.nonempty, frozenset({"min_bytes"})),
    "json": (contents.json_file, frozenset({"keys", "schema", "allow_nan"})),
    "range": (contents.in_range, frozenset({"key", "min", "max"})),
    "csv-rows": (
        contents.csv_rows,
        frozenset({"min_rows", "rows", "columns", "delimiter", "header", "final_newline"}),
    ),
    "sha256": (contents.sha256, frozenset({"value", "list"})),
    "command": (contents.command, frozenset({"command", "timeout_s"})),
    "npz": (archives.npz, frozenset({"keys"})),
    "hdf5": (hdf5.hdf5, frozenset({"datasets"})),
    "bam": (bgzf.bam, frozenset({"min_records"})),
    "gzip": (archives.gzip_file, frozenset({"bgzf"})),
    "zip": (archives.zip_file, frozenset({"names"})),
}

_COMMON = frozenset({"min_files"})

CHECKS: Mapping[str, frozenset[str]] = {
    kind: options | _COMMON for kind, (_, options) in _CHECKERS.items()
}
"""Kinds of checks and the options each understands."""

_TAKES_FOLDERS = frozenset({"exists", "nonempty", "command"})


def check_artifact(
    folder: Path, check: ArtifactCheck, fields: Mapping[str, str]
) -> list[FileProof]:
    """Verify one expected artifact below `folder` and prove each of its files.

    `{field}` in the path stands for a value of `fields`; `*`, `?`, `[…]` and `**` make it a
    pattern, and then every match must verify. Proofs are named relative to `folder`, sorted.
    Raises DataError when the artifact is not there or does not verify, StorageError when it
    cannot be read, ConfigError when the check itself makes no sense.
    """
    checker = _checker(check)
    root = str(folder)
    proofs: list[FileProof] = []
    for name, path in locate(root, check, fields, into_folders=check.check in _TAKES_FOLDERS):
        artifact = contents.Artifact(root, name, path, check.options, fields)
        try:
            checker(artifact)
            proofs.append(prove(path, name, artifact.content))
        except FileNotFoundError as error:
            raise DataError("vanished while it was checked", where=path) from error
        except OSError as error:
            raise StorageError(
                f"cannot be read: {error.strerror or error}",
                where=path,
                fix="look at the file system of this folder, then run the shard again",
            ) from error
    return proofs


def _checker(check: ArtifactCheck) -> Checker:
    known = _CHECKERS.get(check.check)
    if known is None:
        raise ConfigError(
            f"unknown check {check.check!r} of artifact {check.path!r}",
            where="artifacts",
            fix=f"use one of {', '.join(sorted(CHECKS))}",
        )
    checker, options = known
    if check.options and (odd := sorted(set(check.options) - options - _COMMON)):
        raise ConfigError(
            f"check {check.check!r} of artifact {check.path!r} has no option {odd[0]!r}",
            where="artifacts",
            fix=f"options of this check: {', '.join(sorted(options | _COMMON))}",
        )
    return checker
