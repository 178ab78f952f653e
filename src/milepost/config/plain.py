"""Plain data (what JSON can hold): merge, flatten, digest."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `over` laid on top, mappings key by key; neither is changed."""
    merged = copy.deepcopy(dict(base))
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            merged[key] = merge(old, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`; lists stay whole, an empty mapping is a value."""
    if not isinstance(value, Mapping) or (path and not value):
        return {path: value}
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat.update(flatten(item, f"{path}.{key}" if path else str(key)))
    return flat


def json_digest(value: Any) -> str:
    """`sha256:…` over the canonical JSON of plain data: sorted keys, no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
