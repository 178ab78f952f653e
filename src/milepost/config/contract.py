"""The contract: what a run is, frozen with a digest before its launch.

`frozen` holds what decides the results; after the launch a change of it is refused. `accepted`
holds the rest; a change of it is written down in the amendments. Both together are the whole
configuration of the run, so that everything after the contract reads the run from here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from milepost.config.adapters import adapter_digest
from milepost.config.build import build_run
from milepost.config.inputs import find_inputs
from milepost.config.load import json_digest
from milepost.config.spec import RunSpec
from milepost.config.tasks import read_tasks
from milepost.config.versions import find_versions
from milepost.config.yamlfile import merge
from milepost.durable import atomic_file, digest_file, fsync_directory, read_json
from milepost.errors import DataError, Refused
from milepost.model import FileProof
from milepost.paths import RunPaths

SCHEMA = 1
_FROZEN = {
    "work": ("kind", "command", "function", "stages", "adapter", "result", "inputs", "environment"),
    "artifacts": None,
    "control": None,
    "resume": None,
    "checkpoint": ("encrypt",),
}
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Contract:
    """A frozen contract; `spec` is the run as it was when it was frozen."""

    run: str
    digest: str
    spec: RunSpec
    inputs: tuple[FileProof, ...]
    table: Mapping[str, Any]
    versions: Mapping[str, str]
    created: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A field whose value differs from the contract; None stands for a field that is not there."""

    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.field}: {_short(self.old)} -> {_short(self.new)}"


def freeze(spec: RunSpec, paths: RunPaths, now: datetime) -> Contract:
    """Freeze `spec` as the contract of its run and publish it; idempotent.

    Before the launch (no frozen submission) the contract is made anew. Afterwards a change that
    decides results raises Refused, any other is appended to the amendments. `now` is the time
    to record, with a time zone. Reads the task table and digests the inputs.
    """
    new = _describe(spec, paths.root)
    old = _read(paths.frozen_contract) if paths.frozen_contract.exists() else None
    launched = paths.frozen_submission.exists()
    if launched:
        _refuse_changes(old, new, paths)
    if old is not None:
        new["created"] = old["created"]
    created = {} if old is not None else {"created": utc(now)}
    new.update(created)
    if old is not None and launched:
        _amend(paths.amendments, _changes(_changeable(old), _changeable(new)), utc(now))
    elif old != new:
        new["created"] = utc(now)
    text = json.dumps(new, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    for path in (paths.frozen_contract, paths.contract):
        _write(path, text)
    return _contract(new)


def load_contract(paths: RunPaths) -> Contract:
    """Read the frozen contract; DataError when it is damaged or there is none."""
    if not paths.frozen_contract.exists():
        raise DataError(
            f"run {paths.run} has no contract",
            where=paths.frozen_contract,
            fix=f"freeze it with `milepost contract {paths.run}`",
        )
    return _contract(_read(paths.frozen_contract))


def utc(time: datetime) -> str:
    """ISO 8601 with seconds and Z."""
    from datetime import UTC

    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _describe(spec: RunSpec, root: Path) -> dict[str, Any]:
    """The content of the contract, without the time."""
    frozen, accepted = _split(spec)
    frozen["adapter_digest"] = adapter_digest(spec.work.adapter)
    inputs = [proof.as_json() for proof in find_inputs(spec, root)]
    table = root / spec.work.table
    rows = len(read_tasks(table, spec))
    return {
        "schema": SCHEMA,
        "run": spec.name,
        "digest": _digest(frozen, inputs),
        "frozen": frozen,
        "accepted": accepted,
        "inputs": inputs,
        "table": {"path": spec.work.table, "rows": rows, "digest": digest_file(table)},
        "versions": find_versions(spec.software),
    }


def _split(spec: RunSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run's block in two: what decides results, and the rest."""
    frozen: dict[str, Any] = {}
    accepted = merge({}, spec.raw)
    kept: dict[str, Sequence[str] | None] = {**_FROZEN, "resources": _frozen_resources(spec)}
    for key, parts in kept.items():
        if parts is None:
            frozen[key] = accepted.pop(key)
            continue
        block = accepted[key]
        frozen[key] = {part: block.pop(part) for part in parts if part in block}
    return frozen, accepted


def _frozen_resources(spec: RunSpec) -> tuple[str, ...]:
    return ("gpus",) if spec.work.kind == "batch" else ("cpus", "gpus")


def _digest(frozen: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]) -> str:
    return json_digest({"frozen": frozen, "inputs": {i["path"]: i["digest"] for i in inputs}})


def _contract(data: Mapping[str, Any]) -> Contract:
    frozen = {key: value for key, value in data["frozen"].items() if key != "adapter_digest"}
    return Contract(
        run=data["run"],
        digest=data["digest"],
        spec=build_run(data["run"], merge(data["accepted"], frozen)),
        inputs=tuple(FileProof(i["path"], i["bytes"], i["digest"]) for i in data["inputs"]),
        table=data["table"],
        versions=data["versions"],
        created=data["created"],
        data=data,
    )


def _read(path: Path) -> dict[str, Any]:
    """Read and check a contract: its version, and that its digest is that of its content."""
    data: dict[str, Any] = read_json(path)
    fix = "restore it from a backup, or take a new run name"
    if data.get("schema") != SCHEMA:
        raise DataError(
            f"has format version {data.get('schema')!r}, this milepost reads {SCHEMA}",
            where=path,
            fix="use the milepost that wrote it",
        )
    if data["digest"] != _digest(data["frozen"], data["inputs"]):
        raise DataError("was changed after it was frozen", where=path, fix=fix)
    return data


def _refuse_changes(old: dict[str, Any] | None, new: dict[str, Any], paths: RunPaths) -> None:
    if old is None:
        before = read_json(paths.frozen_submission)["contract_digest"]
        changes = [Change("digest", before, new["digest"])] if before != new["digest"] else []
    else:
        changes = _changes(_binding(old), _binding(new))
    if changes:
        lines = [str(change) for change in changes]
        raise Refused(
            "\n  ".join(
                [f"run {paths.run} is launched; {len(lines)} changes would alter results:", *lines]
            ),
            where=paths.frozen_contract,
            fix="take the change back, or give the changed run a new name in the configuration",
        )


def _binding(data: Mapping[str, Any]) -> dict[str, Any]:
    inputs = {item["path"]: item["digest"] for item in data["inputs"]}
    return {**flatten(data["frozen"]), **{f"input {name}": value for name, value in inputs.items()}}


def _changeable(data: Mapping[str, Any]) -> dict[str, Any]:
    table, versions = data["table"], data["versions"]
    return {**flatten(data["accepted"]), **flatten({"table": table, "versions": versions})}


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`; lists stay whole, an empty mapping is a value."""
    if not isinstance(value, Mapping) or (path and not value):
        return {path: value}
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat.update(flatten(item, f"{path}.{key}" if path else str(key)))
    return flat


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    names = sorted(old.keys() | new.keys())
    return [
        Change(name, old.get(name), new.get(name))
        for name in names
        if old.get(name) != new.get(name)
    ]


def _amend(path: Path, changes: Sequence[Change], when: str) -> None:
    """Append one line for each change, durably."""
    if not changes:
        return
    lines = [
        json.dumps({"when": when, "field": c.field, "old": c.old, "new": c.new}) for c in changes
    ]
    with path.open("a", encoding="utf-8") as stream:
        stream.write("".join(line + "\n" for line in lines))
        stream.flush()
        os.fsync(stream.fileno())
    fsync_directory(path.parent)


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as stream:
        stream.write(text)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:97] + "…"
