"""From the data of the configuration files to runs; every mistake is found at once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.config.build import build_run
from milepost.config.checks import check_config
from milepost.config.schema import (
    Problem,
    config_schema,
    fill_defaults,
    schema_problems,
    without_echoes,
)
from milepost.config.spec import RunSpec, TierSpec
from milepost.config.yamlfile import load_config
from milepost.errors import ConfigError

__all__ = ["Config", "ConfigProblems", "load_config", "parse_config", "spec_digest"]


@dataclass(frozen=True, slots=True)
class Config:
    """The runs of a configuration by name, and the places that they share."""

    runs: Mapping[str, RunSpec]
    tiers: TierSpec


class ConfigProblems(ConfigError):
    """All mistakes of a configuration together; `problems` holds them one by one."""

    def __init__(self, problems: Sequence[Problem], source: object) -> None:
        self.problems = tuple(problems)
        count = "1 mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
        lines = [f"{number:3}. {problem}" for number, problem in enumerate(problems, start=1)]
        super().__init__(
            "\n".join([count, *lines]),
            where=source,
            fix="mend them; config/README.md describes every key, `milepost contract --check` checks again",
        )


def parse_config(
    data: Mapping[str, Any], source: object = "configuration", root: Path = Path(".")
) -> Config:
    """Check `data` and make its runs; paths in it are relative to `root`.

    ConfigProblems lists every mistake with its key, its value and what is expected.
    """
    schema = config_schema()
    data = with_text_keys(data)
    filled = fill_defaults(schema, data)
    problems = schema_problems(schema, filled)
    problems += check_config(filled, root)
    if problems:
        raise ConfigProblems(without_echoes(problems), source)
    tiers = filled["tiers"]
    runs = {name: build_run(name, {**raw, "tiers": tiers}) for name, raw in filled["runs"].items()}
    return Config(runs, TierSpec(**tiers))


def with_text_keys(data: Any) -> Any:
    """The same data with every key as text: YAML reads a key such as 2024 as a number."""
    if isinstance(data, Mapping):
        return {str(key): with_text_keys(value) for key, value in data.items()}
    return [with_text_keys(item) for item in data] if isinstance(data, list) else data


def spec_digest(spec: RunSpec) -> str:
    """`sha256:…` over everything the user set or left at its default, whatever the order."""
    return json_digest(spec.raw)


def json_digest(value: Any) -> str:
    """`sha256:…` over the canonical JSON of plain data: sorted keys, no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
