"""From the data of the configuration files to runs; every mistake is found at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from milepost.config.build import build_run
from milepost.config.checks import check_config
from milepost.config.plain import json_digest
from milepost.config.schema import (
    Problem,
    config_schema,
    fill_defaults,
    schema_problems,
    without_echoes,
)
from milepost.config.spec import RunSpec, TierSpec
from milepost.config.yamlfile import key_places, load_config
from milepost.errors import ConfigError

__all__ = ["Config", "ConfigProblems", "load_config", "parse_config", "spec_digest"]


@dataclass(frozen=True, slots=True)
class Config:
    """The runs of a configuration by name, and the places that they share."""

    runs: Mapping[str, RunSpec]
    tiers: TierSpec


class ConfigProblems(ConfigError):
    """All mistakes of a configuration together; `problems` holds them one by one."""

    def __init__(self, problems: Sequence[Problem], where: str) -> None:
        self.problems = tuple(problems)
        count = "1 mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
        lines = [f"{number:3}. {problem}" for number, problem in enumerate(problems, start=1)]
        super().__init__(
            "\n".join([count, *lines]),
            where=where,
            fix="mend them; config/README.md describes every key,"
            " `milepost contract --check` checks again",
        )


def parse_config(
    data: Mapping[str, Any],
    source: str | Sequence[Path] = "configuration",
    root: Path = Path("."),
) -> Config:
    """Check `data` and make its runs; paths in it are relative to `root`.

    ConfigProblems lists every mistake with its key, its value and what is expected, and with its
    line when `source` names the files that `data` was read from.
    """
    schema = config_schema()
    filled = fill_defaults(schema, with_text_keys(data))
    problems = without_echoes([*schema_problems(schema, filled), *check_config(filled, root)])
    if problems:
        names = source if isinstance(source, str) else ", ".join(map(str, source))
        raise ConfigProblems(placed(problems, source), names)
    shared = {"tiers": filled["tiers"], "signatures": filled["signatures"]}
    runs = {name: build_run(name, {**raw, **shared}) for name, raw in filled["runs"].items()}
    return Config(runs, TierSpec(**filled["tiers"]))


def placed(problems: Sequence[Problem], source: str | Sequence[Path]) -> list[Problem]:
    """The problems with their lines, those of one block together."""
    places = {} if isinstance(source, str) else key_places(source)
    placed = [replace(problem, place=_place(problem.key, places)) for problem in problems]
    order = {key: at for at, key in enumerate(places)}
    return sorted(placed, key=lambda problem: order.get(_written(problem.key, places), -1))


def _place(key: str, places: Mapping[str, str]) -> str | None:
    return places.get(_written(key, places))


def _written(key: str, places: Mapping[str, str]) -> str:
    """The key, or the nearest block around it that is written in a file."""
    while key and key not in places:
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return key


def with_text_keys(data: Any) -> Any:
    """The same data with every key as text: YAML reads a key such as 2024 as a number."""
    if isinstance(data, Mapping):
        return {str(key): with_text_keys(value) for key, value in data.items()}
    return [with_text_keys(item) for item in data] if isinstance(data, list) else data


def spec_digest(spec: RunSpec) -> str:
    """`sha256:…` over everything the user set or left at its default, whatever the order."""
    return json_digest(spec.raw)
