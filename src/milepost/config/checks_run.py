"""Checks of the settings of a run against each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from milepost.config.schema import Problem, config_schema, neighbour, shown
from milepost.config.view import View

LONGEST_INTERRUPTIBLE_S = 120
_GPUS = {"cpu": (0, 0), "single-gpu": (1, 1), "multi-gpu": (2, None)}


def check_options() -> Mapping[str, frozenset[str]]:
    """Options of each check of an artifact, as the schema marks them with `x-checks`."""
    properties: Mapping[str, Any] = _artifact_schema()["properties"]
    return {
        check: frozenset(
            name for name, part in properties.items() if check in part.get("x-checks", ())
        )
        for check in properties["check"]["enum"]
    }


def _artifact_schema() -> Mapping[str, Any]:
    run = config_schema()["properties"]["runs"]["additionalProperties"]
    artifact: Mapping[str, Any] = run["properties"]["artifacts"]["items"]
    return artifact


def _artifacts(run: View, tiers: View) -> Iterator[Problem]:
    known = check_options()
    for artifact in run.items("artifacts"):
        check = artifact.text("check")
        if check is None or check not in known:
            continue
        for option in artifact.items():
            is_option = option.name in set().union(*known.values())
            if is_option and option.name not in known[check]:
                others = sorted(name for name, options in known.items() if option.name in options)
                yield option.wrong(f"does not belong to check {check}, but to {', '.join(others)}")
        for names in _required(check):
            if not any(artifact.has(name) for name in names):
                yield artifact.at(names[0]).wrong(
                    f"is missing; check {check} needs {' or '.join(names)}"
                )


def _required(check: str) -> tuple[tuple[str, ...], ...]:
    return {"command": (("command",),), "range": (("key",), ("min", "max"))}.get(check, ())


def _control(run: View, tiers: View) -> Iterator[Problem]:
    name = run.text("control", "file")
    files = [artifact.text("path") for artifact in run.items("artifacts")]
    files += [out.text() for stage in run.items("work", "stages") for out in stage.items("outputs")]
    files += [run.text("work", "result", "file")]
    known = sorted({file for file in files if file is not None})
    if name is not None and name not in known:
        place = run.at("control", "file")
        yield place.wrong(f"{shown(name)} is no artifact; {neighbour(name, known)}")


def _result(run: View, tiers: View) -> Iterator[Problem]:
    result = run.at("work", "result")
    if result.has("file") and result.has("stdout"):
        yield result.at("stdout").wrong("stands beside file; expected one of the two")
    has_source = result.has("file") or result.has("stdout") or run.at("work").has("function")
    if result.has("best") and not has_source:
        yield result.at("best").wrong(
            "needs a result to compare; expected file or stdout beside it"
        )


def _shards(run: View, tiers: View) -> Iterator[Problem]:
    given = [place for place in run.items("shards") if place.data is not None]
    kind = run.text("work", "kind")
    if kind in ("resumable", "stages"):
        for place in given:
            yield place.wrong(
                f"does not belong to kind {kind}, which has one shard a row; remove it"
            )
    elif len(given) > 1:
        names = ", ".join(place.name for place in given)
        yield run.at("shards").wrong(f"has {names}; expected one of them")


def _resources(run: View, tiers: View) -> Iterator[Problem]:
    wanted, gpus = _GPUS.get(run.text("resource_class") or ""), run.get(int, "resources", "gpus")
    if wanted is None or gpus is None or gpus < 0:
        return
    least, most = wanted
    if gpus < least or (most is not None and gpus > most):
        expected = f"{least}" if least == most else f"{least} or more"
        yield run.at("resources", "gpus").wrong(
            f"{gpus} does not go with resource_class {run.text('resource_class')};"
            f" expected {expected}, or another class"
        )


def _interval(run: View, tiers: View) -> Iterator[Problem]:
    place = run.at("checkpoint", "interval_seconds")
    interval = place.data
    if isinstance(interval, str) and interval != "auto":
        yield place.wrong(f"{shown(interval)} is neither auto nor a number of seconds")
    if isinstance(interval, bool) or not isinstance(interval, int | float):
        return
    if interval <= 0:
        yield place.wrong(f"{interval} is not more than 0 (seconds), and not auto")
    elif run.text("planner", "mode") == "interruptible" and interval > LONGEST_INTERRUPTIBLE_S:
        yield place.wrong(
            f"{interval} is more than {LONGEST_INTERRUPTIBLE_S} (seconds), the most in planner.mode"
            " interruptible: nodes are taken away with two minutes' notice"
        )


def _checkpoint(run: View, tiers: View) -> Iterator[Problem]:
    checkpoint = run.at("checkpoint")
    if checkpoint.at("write_atomic").data is False:
        yield checkpoint.at("write_atomic").wrong(
            "false is refused: a half-written checkpoint could be restored; remove the key"
        )
    encrypt = checkpoint.at("encrypt")
    if isinstance(encrypt.data, Mapping):
        given = [key for key in ("key_file", "key_env") if encrypt.has(key)]
        if encrypt.has("age_identity") or encrypt.has("age_recipient"):
            given.append("age_…")
        is_misspelt = not given and encrypt.data
        if len(given) != 1 and not is_misspelt:
            yield encrypt.wrong(
                f"has {' and '.join(given) or 'no key'}; expected key_file, key_env or age_…"
            )
    for item in checkpoint.items("contents"):
        name = item.text("name")
        if name is not None and (name.startswith("/") or ".." in re.split("/", name)):
            yield item.at("name").wrong(
                f"{shown(name)} leaves the checkpoint; expected a file name"
            )
    yield from _uploader(run, tiers)


def _uploader(run: View, tiers: View) -> Iterator[Problem]:
    uploader = run.at("checkpoint", "uploader")
    to = uploader.text("to")
    if run.text("work", "kind") == "batch" or uploader.at("enable").data is not True:
        return
    if to in ("warm", "cold") and isinstance(tiers.data, Mapping) and not tiers.has(to):
        yield uploader.at("to").wrong(
            f"{to} has no place: tiers.{to} is null; name one, or write uploader: {{enable: false}}"
        )


RUN_CHECKS: tuple[Callable[[View, View], Iterator[Problem]], ...] = (
    _artifacts,
    _control,
    _result,
    _shards,
    _resources,
    _interval,
    _checkpoint,
)
