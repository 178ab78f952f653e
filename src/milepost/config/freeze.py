"""Freeze a run as its contract, and hold later changes against it.

Before the launch a contract is made anew. Afterwards
1. a change of what decides the results is refused, with every field that differs;
2. any other change is first appended to the amendments, durably,
3. then the contract is replaced; a crash between the two repeats the step and not the line.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from milepost.clock import iso
from milepost.config.adapters import adapter_digest
from milepost.config.contract import (
    ADAPTER_DIGEST,
    SCHEMA,
    Contract,
    contract_digest,
    parse_contract,
    read_contract,
)
from milepost.config.inputs import find_inputs
from milepost.config.needs import closed_needs
from milepost.config.plain import flatten, merge
from milepost.config.spec import RunSpec
from milepost.config.tasks import read_tasks
from milepost.config.versions import find_versions
from milepost.durable import atomic_file, digest_file, fsync_directory, read_json, storage_errors
from milepost.errors import Refused
from milepost.model import WorkKind
from milepost.paths import RunPaths

_FROZEN: Mapping[str, tuple[str, ...] | None] = {
    "work": ("kind", "command", "function", "stages", "adapter", "result", "inputs", "environment"),
    "artifacts": None,
    "control": None,
    "resume": None,
    "checkpoint": ("encrypt",),
}
"""What decides the results: whole blocks (None) and keys of blocks."""
_SHOWN_CHARS = 100
"""A message shows so much of a value."""


@dataclass(frozen=True, slots=True)
class Change:
    """A field that differs from the contract; None stands for a field that is not there."""

    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        old, new = (json.dumps(value, ensure_ascii=False) for value in (self.old, self.new))
        # of long values, such as commands, the part where they begin to differ
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))
        start = max(0, sum(1 for _ in same) - 30)
        if max(len(old), len(new)) <= _SHOWN_CHARS or start == 0:
            return f"{self.field}: {_short(old)} -> {_short(new)}"
        return f"{self.field}: …{_short(old[start:])} -> …{_short(new[start:])}"


def freeze(spec: RunSpec, paths: RunPaths, now: datetime) -> Contract:
    """Freeze `spec` as the contract of its run and publish it; the same bytes when nothing changed.

    The run is launched when it has a frozen submission; then Refused names what may not change.
    Refused also when a run that it needs is not closed. `now` (with a time zone) is recorded.
    Reads the task table and digests the inputs.
    """
    new = _describe(spec, paths.root)
    old = read_contract(paths.frozen_contract) if paths.frozen_contract.exists() else None
    is_launched = paths.frozen_submission.exists()
    time = iso(now.timestamp())
    if is_launched:
        _refuse_changes(_binding_changes(old, new, paths), paths)
    keeps_time = old is not None and (is_launched or _without_time(old) == new)
    new["created"] = old["created"] if old is not None and keeps_time else time
    if is_launched and old is not None:
        _amend(paths.amendments, _changes(_changeable(old), _changeable(new)), time)
    text = json.dumps(new, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    for path in (paths.frozen_contract, paths.contract):
        with atomic_file(path) as stream:
            stream.write(text)
    return parse_contract(new)


def read_amendments(paths: RunPaths) -> list[dict[str, Any]]:
    """Accepted changes since the launch, oldest first: when, field, old, new.

    A line cut by a crash is left out: its change was not made, it will be recorded again.
    """
    return _records(paths.amendments)


def _records(path: Path) -> list[dict[str, Any]]:
    records = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue  # cut by a crash, see read_amendments
    return records


def _describe(spec: RunSpec, root: Path) -> dict[str, Any]:
    """The content of the contract, all but its time."""
    needs = closed_needs(spec.name, spec.needs, root)
    frozen, accepted = _split(spec)
    frozen[ADAPTER_DIGEST] = adapter_digest(spec.work.adapter)
    inputs = [proof.as_json() for proof in find_inputs(spec, root)]
    table = root / spec.work.table
    rows = len(read_tasks(table, spec))
    return {
        "schema": SCHEMA,
        "run": spec.name,
        "digest": contract_digest(frozen, inputs),
        "frozen": frozen,
        "accepted": accepted,
        "inputs": inputs,
        "table": {"path": spec.work.table, "rows": rows, "digest": digest_file(table)},
        "needs": needs,
        "versions": find_versions(spec.software),
    }


def _split(spec: RunSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run's block in two: what decides results, and the rest."""
    frozen: dict[str, Any] = {}
    accepted = merge({}, spec.raw)
    gpus_only = spec.work.kind is WorkKind.BATCH
    for key, parts in {
        **_FROZEN,
        "resources": ("gpus",) if gpus_only else ("cpus", "gpus"),
    }.items():
        if parts is None:
            frozen[key] = accepted.pop(key)
        else:
            block = accepted[key]
            frozen[key] = {part: block.pop(part) for part in parts if part in block}
    return frozen, accepted


def _binding_changes(
    old: Mapping[str, Any] | None, new: Mapping[str, Any], paths: RunPaths
) -> list[Change]:
    """Differences that decide results. Without the old contract only its digest is known."""
    if old is not None:
        return _changes(_binding(old), _binding(new))
    launched_with = read_json(paths.frozen_submission)["contract_digest"]
    return _changes({"digest": launched_with}, {"digest": new["digest"]})


def _refuse_changes(changes: Sequence[Change], paths: RunPaths) -> None:
    if not changes:
        return
    count = "1 change" if len(changes) == 1 else f"{len(changes)} changes"
    raise Refused(
        "\n  ".join(
            [
                f"run {paths.run} is launched and {count} would alter its results:",
                *(str(change) for change in changes),
            ]
        ),
        where=paths.frozen_contract,
        fix="take the change back, or give the changed run a new name in the configuration",
    )


def _without_time(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != "created"}


def _binding(data: Mapping[str, Any]) -> dict[str, Any]:
    inputs = {f"input {item['path']}": item["digest"] for item in data["inputs"]}
    return {**flatten(data["frozen"]), **inputs}


def _changeable(data: Mapping[str, Any]) -> dict[str, Any]:
    others = {"table": data["table"], "versions": data["versions"]}
    needed = {f"contract of {run}": digest for run, digest in data.get("needs", {}).items()}
    return {**flatten(data["accepted"]), **flatten(others), **needed}


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    return [
        Change(name, old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if json.dumps(old.get(name)) != json.dumps(new.get(name))  # 1 is neither 1.0 nor true
    ]


def _amend(path: Path, changes: Sequence[Change], when: str) -> None:
    """Append a line for each change, durably, unless it is the last one of its field already."""
    last = {record["field"]: (record["old"], record["new"]) for record in _records(path)}
    missing = [change for change in changes if last.get(change.field) != (change.old, change.new)]
    lines = [
        json.dumps({"when": when, "field": c.field, "old": c.old, "new": c.new}) + "\n"
        for c in missing
    ]
    if not lines:
        return
    is_cut = path.exists() and not path.read_bytes().endswith(b"\n")
    with storage_errors(path), path.open("a", encoding="utf-8") as stream:
        stream.write("\n" * is_cut + "".join(lines))
        stream.flush()
        os.fsync(stream.fileno())
    fsync_directory(path.parent)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
