"""Checks of what a file holds: each takes an Artifact and raises DataError when it is wrong."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from milepost.artifacts.locate import fill
from milepost.errors import ConfigError, DataError

_COMMAND_TIMEOUT_S = 600.0
_SAID_BYTES = 2000


@dataclass(slots=True)
class Artifact:
    """One file under check. A checker that reads the whole file leaves it in `content`."""

    root: str
    name: str
    path: str
    options: Mapping[str, Any]
    fields: Mapping[str, str]
    content: bytes | None = field(default=None)

    def fail(self, what: str, fix: str = "look into the log of the task that wrote it") -> NoReturn:
        raise DataError(what, where=self.path, fix=fix)

    def misconfigured(self, what: str, fix: str) -> NoReturn:
        raise ConfigError(f"{what} (artifact {self.name!r})", where="artifacts", fix=fix)


def exists(artifact: Artifact) -> None:
    """A file of that name; that much was found before."""


def nonempty(artifact: Artifact) -> None:
    """At least `min_bytes` (1) bytes, and not only NUL bytes in its last block."""
    size = os.stat(artifact.path).st_size
    minimum = int(artifact.options.get("min_bytes", 1))
    if size < minimum:
        artifact.fail("is empty" if size == 0 else f"has {size} bytes, at least {minimum} expected")


def json_file(artifact: Artifact) -> None:
    """One JSON value; with `keys` (dotted) present and `schema` (JSON Schema) satisfied.

    NaN and Infinity are refused unless `allow_nan`: they are not JSON and seldom a result.
    """
    value = _parsed(artifact, bool(artifact.options and artifact.options.get("allow_nan", False)))
    if not artifact.options:
        return
    for key in artifact.options.get("keys", ()):
        _pick(artifact, value, str(key))
    if schema := artifact.options.get("schema"):
        _satisfies(artifact, value, schema)


def in_range(artifact: Artifact) -> None:
    """The number at `key` (dotted) of a JSON file is finite and between `min` and `max`."""
    options = artifact.options
    if "key" not in options or not {"min", "max"} & set(options):
        artifact.misconfigured("a range needs `key` and `min` or `max`", "add them to the check")
    key = str(options["key"])
    value = _pick(artifact, _parsed(artifact, True), key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        artifact.fail(f"{key} is {value!r}, not a finite number")
    if "min" in options and value < options["min"]:
        artifact.fail(f"{key} is {value!r}, below {options['min']!r}")
    if "max" in options and value > options["max"]:
        artifact.fail(f"{key} is {value!r}, above {options['max']!r}")


def csv_rows(artifact: Artifact) -> None:
    """A table with at least `min_rows` (1) or exactly `rows` rows below its header.

    Every row has as many columns as the first one, `columns` are in the header, and the last
    row is whole: it ends in a newline unless `final_newline` is false. `header: false` counts
    the first row too. A name that ends in .gz is decompressed.
    """
    from milepost.artifacts.table import check_table

    check_table(artifact)


def sha256(artifact: Artifact) -> None:
    """The digest is `value`, or what `list` (default: this name with .sha256) says of it."""
    from milepost.durable import digest_file

    wanted = artifact.options.get("value") or _listed(artifact)
    digest = digest_file(artifact.path, "sha256").removeprefix("sha256:")
    if digest != str(wanted).removeprefix("sha256:").lower():
        artifact.fail(f"has sha256 {digest[:12]}…, {str(wanted)[:12]}… expected")


def command(artifact: Artifact) -> None:
    """The user's own check ends with exit code 0: `command`, in the folder of the artifacts.

    {path} is the file, {out} the folder, other {fields} those of the task; every word of the
    command is filled by itself and no shell sees it. It may take `timeout_s` (600) seconds.
    """
    import shlex
    import subprocess
    import tempfile

    if not artifact.options.get("command"):
        artifact.misconfigured("the check `command` has no command", "add `command:` to it")
    root, path = os.path.abspath(artifact.root), os.path.abspath(artifact.path)
    fields = {**artifact.fields, "path": path, "out": root}
    argv = [fill(word, fields) for word in shlex.split(str(artifact.options["command"]))]
    timeout_s = float(artifact.options.get("timeout_s", _COMMAND_TIMEOUT_S))
    with tempfile.TemporaryFile() as said:
        try:
            done = subprocess.run(
                argv,
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            artifact.fail(f"check {argv[0]!r} took more than {timeout_s:g} s", "raise timeout_s")
        except (FileNotFoundError, PermissionError) as error:
            artifact.misconfigured(
                f"check {argv[0]!r} cannot be started: {error.strerror}", "mend `command:`"
            )
        if done.returncode != 0:
            said.seek(max(0, said.seek(0, os.SEEK_END) - _SAID_BYTES))
            lines = said.read().decode("utf-8", "replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
            artifact.fail(f"check {argv[0]!r} ended with {done.returncode}: {last}")


def _parsed(artifact: Artifact, allow_nan: bool) -> Any:
    with Path(artifact.path).open("rb", buffering=0) as stream:
        artifact.content = stream.read()
    if not artifact.content.strip():
        artifact.fail("is empty, JSON expected")
    try:
        text = artifact.content.decode("utf-8")
        return (_LENIENT if allow_nan else _STRICT).decode(text)
    except _NotANumber as error:
        artifact.fail(f"holds {error}, which is not JSON", "write null, or set `allow_nan: true`")
    except RecursionError:
        artifact.fail("is nested too deeply")
    except ValueError as error:
        artifact.fail(f"is not JSON ({error})")


class _NotANumber(Exception):
    pass


def _refuse_constant(word: str) -> NoReturn:
    raise _NotANumber(word)


_STRICT = json.JSONDecoder(parse_constant=_refuse_constant)
_LENIENT = json.JSONDecoder()


def _pick(artifact: Artifact, value: Any, key: str) -> Any:
    if isinstance(value, dict) and key in value:
        return value[key]
    for part in key.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            artifact.fail(f"has no key {key!r}")
    return value


def _satisfies(artifact: Artifact, value: Any, schema: Any) -> None:
    import jsonschema

    try:
        jsonschema.validate(value, schema)
    except jsonschema.SchemaError as error:
        artifact.misconfigured(f"not a JSON Schema: {error.message}", "mend `schema:`")
    except jsonschema.ValidationError as error:
        place = ".".join(str(part) for part in error.absolute_path)
        artifact.fail(f"{place + ': ' if place else ''}{error.message}")


def _listed(artifact: Artifact) -> str:

    from milepost.durable import inside

    name = fill(str(artifact.options.get("list", artifact.name + ".sha256")), artifact.fields)
    path = inside(Path(artifact.root), name)
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        artifact.fail(f"its list of digests {name!r} is missing")
    entries = dict(entry for line in lines if (entry := _entry(line)) is not None)
    for key in (artifact.name, os.path.basename(artifact.name)):
        if key in entries:
            return entries[key]
    if len(lines) == 1 and len(lines[0].strip()) == 64:
        return lines[0].strip()
    artifact.fail(f"is not in the list of digests {name!r}")


def _entry(line: str) -> tuple[str, str] | None:
    digest, _, name = line.strip().partition(" ")
    name = name.strip().removeprefix("*").removeprefix("./")
    return (name, digest) if len(digest) == 64 and name else None
