"""Read configuration files: YAML without duplicate keys, merged in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from milepost.config.plain import merge
from milepost.config.schema import key_path
from milepost.errors import ConfigError

__all__ = ["key_places", "load_config", "merge"]

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_BASE):  # type: ignore[misc]
    """A safe loader that refuses a key that is written twice in one mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if lines.setdefault(str(key), line) != line:
                raise yaml.constructor.ConstructorError(
                    None,
                    None,
                    f"key {key!r} is there twice, first in line {lines[str(key)]}",
                    key_node.start_mark,
                )
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


def load_config(
    paths: Sequence[Path], overrides: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Read YAML files and merge them in order, deeply; `overrides` come last.

    A mapping is merged key by key, anything else is replaced. ConfigError names the file and
    the line of what is not YAML.
    """
    merged: dict[str, Any] = {}
    for path in paths:
        merged = merge(merged, _read(Path(path)))
    return merge(merged, overrides or {})


def _read(path: Path) -> dict[str, Any]:
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except OSError as error:
        raise ConfigError(
            f"the configuration cannot be read ({error.strerror})",
            where=path,
            fix="name the file with --config, or work in the folder that holds config/",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8", where=path, fix="save it as UTF-8") from error
    except yaml.YAMLError as error:
        raise _yaml_error(path, error) from error
    if not isinstance(data, dict):
        raise ConfigError(
            "holds no mapping", where=path, fix="begin with `runs:`; see config/README.md"
        )
    return data


def key_places(paths: Iterable[Path]) -> dict[str, str]:
    """Key path -> `file:line` for everything written in the files; the last file counts."""
    places: dict[str, str] = {}
    for path in paths:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
        for key, line in _key_lines(node, ()):
            places[key_path(key)] = f"{path}:{line}"
    return places


def _key_lines(
    node: Any, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            yield inner, key.start_mark.line + 1
            yield from _key_lines(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for at, value in enumerate(node.value):
            yield (*path, at), value.start_mark.line + 1
            yield from _key_lines(value, (*path, at))


def _yaml_error(path: Path, error: yaml.YAMLError) -> ConfigError:
    mark = getattr(error, "problem_mark", None)
    place = path if mark is None else f"{path}:{mark.line + 1}:{mark.column + 1}"
    problem = getattr(error, "problem", None) or str(error)
    return ConfigError(f"is not right as YAML: {problem}", where=place, fix="mend that line")
