"""Other values for one plan: `--what-if t_ckpt_s=5 mtbf_h=6`, beside the plan as it is."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from milepost.config.spec import RunSpec, ShardsSpec
from milepost.errors import ConfigError
from milepost.planner.summary import plan_lines

Inputs = dict[str, Any]

_WIDTH, _COLUMN = 80, 33
_MODES = ("auto", "on-demand", "interruptible", "reserved")


def apply_changes(inputs: Inputs, changes: Iterable[str]) -> Inputs:
    """Change arguments of make_plan by `KEY=VALUE` texts; the given `inputs` stay as they are.

    An unknown key or a value of the wrong kind is a ConfigError.
    """
    changed = dict(inputs)
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or key not in _CHANGES:
            near = difflib.get_close_matches(key, _CHANGES, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(
                f"unknown change {change!r}",
                where="--what-if",
                fix=f"{hint}use KEY=VALUE with one of {', '.join(_CHANGES)}",
            )
        changed = _CHANGES[key](changed, key, text)
    return changed


def compare(
    run: str,
    changes: Sequence[str],
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any],
    refusal: str = "",
) -> str:
    """Both plans side by side for a terminal of 80 columns, then every assumption that differs.

    Without `before`, which could not be made, `refusal` says why.
    """
    lines = textwrap.wrap(f"{run}, if {', '.join(changes)}", _WIDTH)
    then = dict(plan_lines(after))
    now = dict.fromkeys(then, "-") if before is None else dict(plan_lines(before))
    lines += _three("", "now", "then")
    for name, text in then.items():
        lines += _three(name, now[name], text)
    if before is None:
        lines += textwrap.wrap(f"now       refused: {refusal}", _WIDTH, subsequent_indent=" " * 10)
    lines.append("assumptions that differ:")
    for name, old, new in _differences(before, after):
        lines += textwrap.wrap(f"  {name}: {old} -> {new}", _WIDTH, subsequent_indent="    ")
    notes = [note for note in after["notes"] if before is None or note not in before["notes"]]
    for note in notes:
        lines += textwrap.wrap(f"note: {note}", _WIDTH, subsequent_indent="      ")
    return "\n".join(lines)


def _three(name: str, now: str, then: str) -> list[str]:
    """A row of two columns, each wrapped."""
    left, right = textwrap.wrap(now, _COLUMN) or [""], textwrap.wrap(then, _COLUMN) or [""]
    rows = zip_longest((name,), left, right, fillvalue="")
    return [f"{a:<9} {b:<{_COLUMN}}   {c}".rstrip() for a, b, c in rows]


def _differences(
    before: Mapping[str, Any] | None, after: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Assumptions whose value is another one, with their units."""
    old = {row["name"]: _said(row) for row in (before or {"assumptions": ()})["assumptions"]}
    new = {row["name"]: _said(row) for row in after["assumptions"]}
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield name, old.get(name, "-"), new.get(name, "-")


def _said(row: Mapping[str, Any]) -> str:
    value = row["value"]
    text = "n/a" if value is None else _plain(value)
    return f"{text} {row['unit']}".rstrip()


def _plain(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1e5 else f"{value:.6g}"


def _spec(change: Callable[[RunSpec, str, str], RunSpec]) -> Callable[[Inputs, str, str], Inputs]:
    return lambda inputs, key, text: {**inputs, "spec": change(inputs["spec"], key, text)}


def _planner(spec: RunSpec, key: str, text: str) -> RunSpec:
    value: Any = None if text in ("null", "none") else _number(key, text)
    return replace(spec, planner=replace(spec.planner, **{key: value}))


def _mode(spec: RunSpec, key: str, text: str) -> RunSpec:
    if text not in _MODES:
        raise ConfigError(f"{key} is {text!r}", where="--what-if", fix=f"use {', '.join(_MODES)}")
    return replace(spec, planner=replace(spec.planner, mode=text))  # type: ignore[arg-type]


def _resources(spec: RunSpec, key: str, text: str) -> RunSpec:
    return replace(
        spec, resources=replace(spec.resources, **{key: _whole(key, _number(key, text))})
    )


def _shards(spec: RunSpec, key: str, text: str) -> RunSpec:
    number = _number(key, text)
    value: Any = number if key == "target_s" else _whole(key, number)
    return replace(spec, shards=ShardsSpec(**{key: value}))


def _interval(spec: RunSpec, key: str, text: str) -> RunSpec:
    value = None if text == "auto" else _number(key, text)
    return replace(spec, checkpoint=replace(spec.checkpoint, interval_s=value))


def _spread(inputs: Inputs, key: str, text: str) -> Inputs:
    value = _number(key, text)
    return _measured(inputs, key, {"median": value, "p95": value, "n": 1})


def _single(inputs: Inputs, key: str, text: str) -> Inputs:
    return _measured(inputs, key, _number(key, text))


def _measured(inputs: Inputs, key: str, value: Any) -> Inputs:
    smoke: Mapping[str, Any] = inputs["smoke"]
    return {**inputs, "smoke": {**smoke, "measured": {**smoke.get("measured", {}), key: value}}}


def _tasks(inputs: Inputs, key: str, text: str) -> Inputs:
    """Another number of rows; of rows that are not there no sizes are known."""
    return {**inputs, "tasks": _whole(key, _number(key, text)), "sizes": None}


def _file(inputs: Inputs, key: str, text: str) -> Inputs:
    """A value of the profiles file that counts for every profile."""
    profiles = _profiles(inputs, key)
    value = _number(key, text, zero=key.startswith("storage"))
    if key == "utilisation":
        return {**inputs, "profiles": {**profiles, key: value}}
    name = {"storage_price": "price_per_gb_month", "storage_gb": "capacity_gb"}[key]
    storage = {**(profiles.get("storage") or {}), name: value}
    return {**inputs, "profiles": {**profiles, "storage": storage}}


def _notice(inputs: Inputs, key: str, text: str) -> Inputs:
    """A term of the interruptible mode of every profile."""
    profiles, value = _profiles(inputs, key), _number(key, text)
    changed = {}
    for name, profile in (profiles.get("profiles") or {}).items():
        modes = dict((profile or {}).get("modes") or {})
        if "interruptible" in modes:
            modes["interruptible"] = {**(modes["interruptible"] or {}), key: value}
        changed[name] = {**(profile or {}), "modes": modes}
    return {**inputs, "profiles": {**profiles, "profiles": changed}}


def _profiles(inputs: Inputs, key: str) -> Mapping[str, Any]:
    if inputs.get("profiles") is None:
        raise ConfigError(
            f"{key} belongs to profiles, and there are none",
            where="--what-if",
            fix="name a file in planner.profiles",
        )
    found: Mapping[str, Any] = inputs["profiles"]
    return found


def _number(key: str, text: str, *, zero: bool = False) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ConfigError(f"{key} is {text!r}, not a number", where="--what-if") from error
    if not (0.0 < value < float("inf") or (zero and value == 0.0)):
        least = "0 or more" if zero else "above 0"
        raise ConfigError(f"{key} is {text}", where="--what-if", fix=f"use a number {least}")
    return value


def _whole(key: str, value: float) -> int:
    if value != int(value):
        raise ConfigError(f"{key} is {value:g}", where="--what-if", fix="use a whole number")
    return int(value)


_CHANGES: dict[str, Callable[[Inputs, str, str], Inputs]] = {
    "mtbf_h": _spec(_planner),
    "deadline_h": _spec(_planner),
    "budget": _spec(_planner),
    "mode": _spec(_mode),
    "interval_seconds": _spec(_interval),
    "target_s": _spec(_shards),
    "count": _spec(_shards),
    "tasks_per_shard": _spec(_shards),
    "runtime_s": _spec(_resources),
    "cpus": _spec(_resources),
    "gpus": _spec(_resources),
    "task_s": _spread,
    "t_ckpt_s": _spread,
    "startup_s": _single,
    "durable_s": _single,
    "restore_s": _single,
    "step_s": _single,
    "ckpt_bytes": _single,
    "max_rss_bytes": _single,
    "tasks": _tasks,
    "utilisation": _file,
    "storage_price": _file,
    "storage_gb": _file,
    "notice_s": _notice,
    "preempt_mtbf_h": _notice,
}
