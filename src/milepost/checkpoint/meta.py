"""Small state as JSON that comes back exactly: numbers of any size, arrays, tuples, bytes.

What JSON has no word for is written as an object with the key `$`, for instance
`{"$": "tuple", "items": [1, 2]}`. Nothing is ever unpickled.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib import format as npy

from milepost.errors import DataError

_TAG = "$"


def to_json(value: Any, where: str = "meta") -> Any:
    """Turn `value` into plain JSON data.

    numpy scalars become Python numbers. A value of another kind is a DataError that names its
    place, such as `meta.rng.state`.
    """
    if isinstance(value, np.generic):
        return _scalar(value, where)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {_TAG: "float", "value": repr(float(value))}
    if isinstance(value, complex):
        return {_TAG: "complex", "value": [to_json(value.real), to_json(value.imag)]}
    if isinstance(value, bytes | bytearray):
        return {_TAG: "bytes", "value": base64.b64encode(value).decode("ascii")}
    if isinstance(value, np.ndarray):
        return _array(value, where)
    return _container(value, where)


def from_json(value: Any) -> Any:
    """Undo `to_json`; an unknown tag is a DataError."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {key: from_json(item) for key, item in value.items()}
    return _tagged(value)


def dtype_to_json(dtype: np.dtype[Any], where: str) -> Any:
    """Describe a dtype as JSON; one that would not come back the same is a DataError."""
    if not dtype.hasobject:
        text = npy.dtype_to_descr(dtype)
        if npy.descr_to_dtype(text) == dtype:
            return _lists(text)
    raise DataError(
        f"{where} has the dtype {dtype}, which cannot be saved without pickle",
        fix="convert it to a plain numpy dtype (numbers, fixed-width text, dates) first",
    )


def dtype_from_json(value: Any) -> np.dtype[Any]:
    """Undo `dtype_to_json`."""
    try:
        dtype = np.dtype(npy.descr_to_dtype(_tuples(value)))
    except (TypeError, ValueError, SyntaxError, KeyError, IndexError) as error:
        raise DataError(f"unknown dtype {value!r} in a checkpoint") from error
    if dtype.hasobject:
        raise DataError(f"dtype {value!r} in a checkpoint holds Python objects, which are refused")
    return dtype


def _container(value: Any, where: str) -> Any:
    if isinstance(value, tuple):
        items = [to_json(item, f"{where}[{n}]") for n, item in enumerate(value)]
        return {_TAG: "tuple", "items": items}
    if isinstance(value, list):
        return [to_json(item, f"{where}[{n}]") for n, item in enumerate(value)]
    if isinstance(value, Mapping):
        return _mapping(value, where)
    raise DataError(
        f"{where} is a {type(value).__name__}, which cannot be saved as JSON",
        fix="give numbers, text, lists, dicts and numpy arrays; large arrays belong among the arrays",
    )


def _mapping(value: Mapping[Any, Any], where: str) -> Any:
    for key in value:
        if not isinstance(key, str):
            raise DataError(
                f"{where} has the key {key!r}, which is not text", fix="use text as keys"
            )
    plain = {key: to_json(item, f"{where}.{key}") for key, item in value.items()}
    return {_TAG: "dict", "items": plain} if _TAG in plain else plain


def _scalar(value: np.generic, where: str) -> Any:
    item = value.item()
    exact = not isinstance(value, np.longdouble | np.clongdouble)
    if (
        exact
        and isinstance(item, bool | int | float | complex | str | bytes)
        and value.dtype.kind in "biufcUS"
    ):
        return to_json(item, where)
    return {_TAG: "scalar", "value": _array(np.asarray(value), where)}


def _array(value: np.ndarray[Any, Any], where: str) -> Any:
    return {
        _TAG: "ndarray",
        "dtype": dtype_to_json(value.dtype, where),
        "shape": list(value.shape),
        "data": base64.b64encode(value.tobytes()).decode("ascii"),
    }


def _tagged(value: dict[str, Any]) -> Any:
    tag = value[_TAG]
    try:
        if tag == "tuple":
            return tuple(from_json(item) for item in value["items"])
        if tag == "dict":
            return {key: from_json(item) for key, item in value["items"].items()}
        if tag == "float":
            return float(value["value"])
        if tag == "complex":
            return complex(*(from_json(part) for part in value["value"]))
        if tag == "bytes":
            return base64.b64decode(value["value"], validate=True)
        if tag == "scalar":
            return from_json(value["value"])[()]
        if tag == "ndarray":
            flat = np.frombuffer(
                base64.b64decode(value["data"], validate=True), dtype_from_json(value["dtype"])
            )
            return flat.reshape(value["shape"]).copy()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"damaged {tag!r} value in the meta data of a checkpoint") from error
    raise DataError(f"unknown kind of value {tag!r} in the meta data of a checkpoint")


def _lists(value: Any) -> Any:
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _tuples(value: Any) -> Any:
    """The inverse of `_lists` for dtype descriptions: fields are tuples in a list."""
    if not isinstance(value, list):
        return value
    if len(value) == 2 and isinstance(value[1], list) and all(type(n) is int for n in value[1]):
        return (_tuples(value[0]), tuple(value[1]))
    return [_field(item) for item in value]


def _field(item: Any) -> Any:
    if not isinstance(item, list) or len(item) not in (2, 3):
        raise DataError(f"unknown field {item!r} in a dtype of a checkpoint")
    name = tuple(item[0]) if isinstance(item[0], list) else item[0]
    rest = tuple(item[2]) if len(item) == 3 else None
    kind = _tuples(item[1])
    return (name, kind) if rest is None else (name, kind, rest)
