"""Failure signatures that a user wrote: in the configuration, or in a file of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from milepost.config.schema import Problem, config_schema, schema_problems, shown, without_echoes
from milepost.config.view import View
from milepost.errors import ConfigError
from milepost.literals import literals_of

LOOKS = ("words", "lines", "errno", "signal")
"""Keys that say where a signature looks; without one of them it would fit every log."""


def check_signatures(signatures: View) -> Iterator[Problem]:
    """Mistakes that a schema cannot see: what is no regular expression, or would fit anything."""
    for signature in signatures.items():
        if isinstance(signature.data, Mapping) and not any(signature.has(key) for key in LOOKS):
            yield signature.wrong(f"says not where to look; add {', '.join(LOOKS[:-1])} or signal")
        for line in signature.items("lines"):
            yield from _expression(line, needs_text=True)
        yield from _expression(signature.at("pattern"), needs_text=False)


def _expression(place: View, *, needs_text: bool) -> Iterator[Problem]:
    text = place.text()
    if text is None:
        return
    try:
        re.compile(text)
        if needs_text:
            literals_of(text)
    except (re.error, ValueError) as error:
        yield place.wrong(f"{shown(text)} cannot be used as a regular expression: {error}")


def read_signatures(path: Path) -> Sequence[Mapping[str, Any]]:
    """The signatures of a YAML file: a list of them, or a mapping with the key `signatures`.

    A configuration is such a mapping. ConfigError names each mistake with its line.
    """
    from milepost.config.load import ConfigProblems, placed

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot be read as YAML ({error})", where=path) from error
    is_mapping = isinstance(data, Mapping)
    rows = data.get("signatures") if is_mapping else data
    if not isinstance(rows, list):
        raise ConfigError(
            "is no list of signatures",
            where=path,
            fix="write it like `signatures:` of workflow/policies/failures.yaml",
        )
    root = ("signatures",) if is_mapping else ()
    schema: Any = config_schema()["properties"]["signatures"]
    whole = {"properties": {"signatures": schema}} if is_mapping else schema
    found = schema_problems(whole, {"signatures": rows} if is_mapping else rows)
    if problems := without_echoes([*found, *check_signatures(View(rows, root))]):
        raise ConfigProblems(placed(problems, [path]), str(path))
    return rows
