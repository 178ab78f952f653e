"""Apply the schema of the configuration: fill in defaults, and say what is wrong in words."""

from __future__ import annotations

import copy
import difflib
import functools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from milepost.resources import load_yaml

Schema = Mapping[str, Any]
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_KINDS = {
    "object": "a mapping of keys",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: `key` is its path, `says` the value and what is expected."""

    key: str
    says: str
    meant: str | None = None
    """The key that was probably meant by an unknown one."""
    place: str | None = None
    """File and line, when they are known."""

    def __str__(self) -> str:
        text = f"{self.key}: {self.says}"
        return text if self.place is None else f"{text}  [{self.place}]"


@functools.cache
def config_schema() -> Schema:
    """The schema of the configuration; all references resolved."""
    root = load_yaml("schemas", "config.schema.yaml")
    definitions = root.pop("$defs")
    resolved: Schema = _resolve(root, definitions)
    return resolved


def _resolve(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_resolve(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _resolve(definitions[node["$ref"].rpartition("/")[2]], definitions)
    return {key: _resolve(value, definitions) for key, value in node.items()}


def fill_defaults(schema: Schema, data: Any) -> Any:
    """A copy of `data` with the defaults of the schema, and each number in one form.

    YAML reads 1e-6 as text because it has no point; here it becomes a number where one belongs.
    """
    if isinstance(data, dict):
        return _fill_mapping(schema, data)
    if isinstance(data, list):
        return [fill_defaults(schema.get("items", {}), item) for item in data]
    kinds = _types(schema)
    if "string" not in kinds and type(data) in (int, float, str):
        return _as_number(data, kinds)
    return copy.deepcopy(data)


def _as_number(data: float | str, kinds: list[str]) -> Any:
    """One form for one number, so that 2, 2.0 and 2e0 have one digest."""
    if isinstance(data, int) and abs(data) > sys.float_info.max:
        return data
    if "number" in kinds and (not isinstance(data, str) or _NUMBER.fullmatch(data)):
        return float(data)
    if "integer" in kinds and isinstance(data, float) and data.is_integer():
        return int(data)
    return data


def _fill_mapping(schema: Schema, data: Mapping[str, Any]) -> dict[str, Any]:
    known = schema.get("properties", {})
    other = schema.get("additionalProperties") or {}
    filled = {key: fill_defaults(known.get(key, other), value) for key, value in data.items()}
    for key, part in known.items():
        if key not in filled and "default" in part:
            filled[key] = fill_defaults(part, part["default"])
    return filled


def schema_problems(schema: Schema, data: Any) -> list[Problem]:
    """Everything in `data` that the schema does not allow, in the order of the keys."""
    from jsonschema import Draft202012Validator

    errors = sorted(Draft202012Validator(schema).iter_errors(data), key=lambda e: str(e.json_path))
    return [problem for error in errors for problem in _explain(error)]


def without_echoes(problems: Iterable[Problem]) -> list[Problem]:
    """One message for each mistake: a key that was only misspelt is not missing as well."""
    problems = list(dict.fromkeys(problems))
    meant = {problem.meant for problem in problems}
    return [p for p in problems if not (p.key in meant and p.says.startswith("is missing"))]


def _explain(error: Any) -> Iterator[Problem]:
    key = key_path(error.absolute_path)
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        for name in error.instance:
            if name not in known:
                close = nearest(name, known)
                meant = _join(key, close) if close else None
                yield Problem(_join(key, name), f"unknown key; {neighbour(name, known)}", meant)
    elif error.validator == "required":
        for name in error.validator_value:
            if name not in error.instance:
                part = error.schema["properties"][name]
                yield Problem(_join(key, name), f"is missing; expected {_expected(part)}")
    elif error.validator == "enum":
        known = [str(value) for value in error.validator_value]
        yield Problem(
            key, f"{shown(error.instance)} is unknown; {neighbour(error.instance, known)}"
        )
    else:
        yield Problem(key, f"{shown(error.instance)}; expected {_expected(error.schema)}")


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known word that `word` is probably a misspelling of."""
    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return close[0] if close else None


def neighbour(word: object, known: Iterable[str]) -> str:
    """`did you mean x?` for a misspelling, else what was expected instead."""
    known = list(known)
    close = nearest(word, known)
    if close is not None:
        return f"did you mean {close}?"
    return f"expected one of {', '.join(known)}" if known else "expected nothing here"


def _expected(schema: Schema) -> str:
    kinds = " or ".join(_KINDS[kind] for kind in _types(schema))
    bounds = {
        "minimum": "at least {}",
        "exclusiveMinimum": "more than {}",
        "minLength": "not empty",
        "maxLength": "of {} character",
        "minItems": "with {} item or more",
        "minProperties": "with {} key or more",
        "uniqueItems": "no item twice",
        "pattern": "like {}",
    }
    limits = [text.format(schema[name]) for name, text in bounds.items() if name in schema]
    sentence = schema.get("description", "").partition(". ")[0].rstrip(".")
    described = f" ({sentence})" if sentence else ""
    options = ", ".join(str(value) for value in schema.get("enum", ()))
    return ", ".join([kinds or f"one of {options}", *limits]) + described


def _types(schema: Schema) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


def key_path(parts: Iterable[str | int]) -> str:
    """`runs.sweep.artifacts[0].path` from its parts."""
    path = ""
    for part in parts:
        path = f"{path}[{part}]" if isinstance(part, int) else _join(path, part)
    return path


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def shown(value: object) -> str:
    """A value as it appears in a message, cut when it is long."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
