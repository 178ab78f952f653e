"""Does the control metric agree with its reference? Asked of each finished shard."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.config.spec import ControlSpec
from milepost.durable import read_json
from milepost.errors import DataError
from milepost.evidence.types import RunEvidence, ShardEvidence
from milepost.model import WorkKind


@dataclass(frozen=True, slots=True)
class Control:
    """A value beside its reference; `sigmas` is their distance in units of `error`.

    `agrees` is None when there is nothing to compare with.
    """

    shard: str
    value: float | None
    reference: float | None
    error: float | None
    sigmas: float | None
    agrees: bool | None
    problem: str | None = None


def controls(run: RunEvidence) -> list[Control]:
    """The control metric of every finished shard of a resumable or staged run.

    A batch run has a value for each task and its best row; its control belongs to the smoke test.
    """
    spec = run.spec
    if spec is None or spec.control is None or spec.work.kind is WorkKind.BATCH:
        return []
    return [
        _control(run.paths.artifact(shard.name) / spec.control.file, shard, spec.control)
        for shard in run.shards
        if shard.done == len(shard.tasks)
    ]


def _control(path: Path, shard: ShardEvidence, spec: ControlSpec) -> Control:
    try:
        found = read_json(path)
        value = _number(found, spec.metric)
        reference = _number(found, spec.reference)
        error = _number(found, spec.error)
    except (DataError, OSError) as error_:
        return Control(shard.name, None, None, None, None, False, str(error_))
    if value is None:
        return Control(shard.name, None, None, None, None, False, f"no number {spec.metric!r}")
    if reference is None:
        return Control(shard.name, value, None, error, None, None)
    distance = abs(value - reference)
    if not error:
        agrees = distance <= spec.atol + spec.rtol * abs(reference)
        return Control(shard.name, value, reference, None, None, agrees)
    sigmas = distance / error
    return Control(shard.name, value, reference, error, sigmas, sigmas <= spec.sigmas)


def _number(found: Mapping[str, Any], name: str | None) -> float | None:
    value = found.get(name) if name is not None and isinstance(found, Mapping) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def summary(found: Iterable[Control]) -> str:
    """One line: how many agree, and how far the farthest is from its reference."""
    compared = [c for c in found if c.agrees is not None]
    agree = sum(bool(c.agrees) for c in compared)
    distances = [c.sigmas for c in compared if c.sigmas is not None]
    text = f"{agree} of {len(compared)} agree with the reference"
    if distances:
        middle = statistics.median(distances)
        text += f"; distance {middle:.2f} sigma in the middle, {max(distances):.2f} at most"
    return text
