"""Other values for one plan: `--what-if mtbf_h=6`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from milepost.config.spec import RunSpec, ShardsSpec
from milepost.errors import ConfigError

Inputs = dict[str, Any]

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
    return {**inputs, "tasks": _whole(key, _number(key, text))}


def _number(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ConfigError(f"{key} is {text!r}, not a number", where="--what-if") from error
    if not 0.0 < value < float("inf"):
        raise ConfigError(f"{key} is {text}", where="--what-if", fix="use a number above 0")
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
}
