"""The assumptions behind the choice of profile and mode, each number with its source."""

from __future__ import annotations

from typing import Any

from milepost.config.spec import RunSpec
from milepost.model import WorkKind
from milepost.planner.choose import Choice
from milepost.planner.measured import Measured
from milepost.planner.offers import memory_gb

Rows = list[dict[str, Any]]

PROFILE = "stated in the profile"
FILE = "stated in the profiles file"
STATED = "stated in the config"
UNKNOWN = "not stated"


def choice_rows(spec: RunSpec, measured: Measured, choice: Choice) -> Rows:
    """Wishes, storage, and the terms of the profile of the largest placement."""
    rows = _wish_rows(spec)
    if spec.work.kind is WorkKind.RESUMABLE:
        rows += _storage_rows(spec, choice)
    if choice.forecast.machine.profile is not None:
        rows += _profile_rows(spec, measured, choice)
    return rows


def _wish_rows(spec: RunSpec) -> Rows:
    wishes = (("deadline_h", spec.planner.deadline_h, "h"), ("budget", spec.planner.budget, ""))
    return [_row(name, value, unit, STATED) for name, value, unit in wishes if value is not None]


def _storage_rows(spec: RunSpec, choice: Choice) -> Rows:
    """What a shard's checkpoints hold at its end, and on what terms they stay."""
    storage, found = choice.storage, choice.forecast
    source = "computed from ckpt_bytes, rotation and gold_every"
    if storage.ckpt_bytes is None:
        source = "computed from the profile's typical checkpoint"
    held = None
    size = storage.size_gb(found)
    if size is not None:
        useful_s = 0.0 if found.work_s is None else found.work_s
        held = int(size * 1e9 * storage.kept(found, useful_s))
    rows = [_row("kept_bytes", held, "bytes", "not measured" if held is None else source)]
    if found.machine.profile is None:
        return rows
    unit = f"{choice.currency}/(GB month)"
    return [
        *rows,
        _row("retention_days", spec.checkpoint.ttl_days, "d", STATED),
        _row("storage_price", storage.price, unit, _said(storage.price, FILE)),
        _row("storage_capacity_gb", storage.capacity_gb, "GB", _said(storage.capacity_gb, FILE)),
    ]


def _profile_rows(spec: RunSpec, measured: Measured, choice: Choice) -> Rows:
    machine = choice.forecast.machine
    price = machine.price_per_h
    hours = None if machine.walltime_s is None else machine.walltime_s / 3600.0
    need = memory_gb(spec, measured)
    rows = [
        _row("profile", machine.profile, "", "chosen"),
        _row("price_per_h", price, f"{choice.currency}/h", _said(price, PROFILE)),
        _row("speed", machine.speed, "of the smoke test's machine", PROFILE),
        _row("write_speed", machine.write_speed, "of the smoke test's", PROFILE),
        _row("utilisation", machine.utilisation, "", PROFILE),
        _row("places", machine.places, "shards at a time", _said(machine.places, PROFILE)),
        _row("walltime_max_h", hours, "h", _said(hours, PROFILE)),
    ]
    if spec.resources.gpus:
        source = "computed from ckpt_bytes" if need is not None else "not measured"
        rows.append(_row("vram_needed_gb", need, "GB", source))
        rows.append(_row("vram_gb", machine.vram_gb, "GB", PROFILE))
    return rows


def _said(value: object, source: str) -> str:
    return UNKNOWN if value is None else source


def _row(name: str, value: Any, unit: str, source: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "source": source}
