"""Where each array lies in the image, and how the image is cut into blocks.

The image is what is copied from the application and what a raw data file holds: large arrays
begin on a page, small ones share one segment. Blocks never cross a segment, so that a change of
one array's size leaves the blocks of the others as they were.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from milepost.checkpoint.meta import dtype_from_json, dtype_to_json
from milepost.errors import DataError

PAGE_BYTES = 4096
BLOCK_BYTES = 1 << 20
"""The largest block, and the usual one."""
_SMALL_BYTES = 64 << 10
_SMALL_ALIGN_BYTES = 64


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """One array: `offset` is in bytes from the start of the image; the data is in C order."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "dtype": dtype_to_json(self.dtype, self.name),
            "shape": list(self.shape),
            "offset": self.offset,
        }


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of the image: `size` bytes (at most a block) at `offset`, which is on a page."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of all arrays and the blocks; `image_bytes` is a whole number of pages."""

    arrays: tuple[ArrayPlace, ...]
    blocks: tuple[Block, ...]
    image_bytes: int
    block_bytes: int = BLOCK_BYTES

    def item_sizes(self) -> list[int]:
        """For each block the bytes of its floating point numbers; 0 when it holds others too."""
        arrays = [place for place in self.arrays if place.size_bytes >= _SMALL_BYTES]
        starts = [place.offset for place in arrays]
        sizes = []
        for block in self.blocks:
            n = bisect.bisect_right(starts, block.offset) - 1
            dtype = arrays[n].dtype if n >= 0 else np.dtype(np.uint8)
            parts = {"f": 1, "c": 2}.get(dtype.kind)
            sizes.append(0 if parts is None else dtype.itemsize // parts)
        return sizes

    @property
    def logical_bytes(self) -> int:
        return sum(place.size_bytes for place in self.arrays)


def plan_layout(
    arrays: Mapping[str, np.ndarray[Any, Any]], block_bytes: int = BLOCK_BYTES
) -> Layout:
    """Place `arrays`; the same names, dtypes and shapes always give the same layout.

    `block_bytes` is a whole number of pages and at most BLOCK_BYTES.
    """
    places: list[ArrayPlace] = []
    segments: list[Block] = []
    offset = 0
    for name, array in sorted(arrays.items(), key=_large_last):
        _check(name, array)
        if array.nbytes >= _SMALL_BYTES:
            if segments or offset:
                offset = _up(offset, PAGE_BYTES)
            _close_small(segments, offset)
            segments.append(Block(offset, array.nbytes))
        places.append(ArrayPlace(name, array.dtype, array.shape, offset))
        offset = _up(offset + array.nbytes, _SMALL_ALIGN_BYTES)
    if not segments and offset:
        segments.append(Block(0, offset))
    blocks = tuple(piece for segment in segments for piece in _cut(segment, block_bytes))
    return Layout(tuple(places), blocks, _up(offset, PAGE_BYTES), block_bytes)


def places_from_json(value: Any, image_bytes: int) -> tuple[ArrayPlace, ...]:
    """Parse the array table of a data file; places outside the image are a DataError."""
    places = []
    try:
        for item in value:
            shape = tuple(item["shape"])
            if any(type(n) is not int or n < 0 for n in (*shape, item["offset"])):
                raise DataError(f"array {item['name']!r} has the shape {shape}")
            place = ArrayPlace(
                str(item["name"]), dtype_from_json(item["dtype"]), shape, item["offset"]
            )
            if place.offset + place.size_bytes > image_bytes:
                raise DataError(f"array {place.name!r} lies outside the image")
            places.append(place)
    except (KeyError, TypeError) as error:
        raise DataError("damaged table of arrays") from error
    return tuple(places)


def _check(name: str, array: np.ndarray[Any, Any]) -> None:
    # numpy loads this part when it is first asked for, which would take longer than a save
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise DataError(
            f"array {name!r} is masked, and its mask would be lost",
            fix="save its data and its mask as two arrays",
        )
    dtype_to_json(array.dtype, f"array {name!r}")


def _large_last(item: tuple[str, np.ndarray[Any, Any]]) -> tuple[bool, str]:
    return (item[1].nbytes >= _SMALL_BYTES, item[0])


def _close_small(segments: list[Block], offset: int) -> None:
    """Everything before the first large array is the segment of the small ones."""
    if not segments and offset:
        segments.append(Block(0, offset))


def _cut(segment: Block, block_bytes: int) -> list[Block]:
    end = segment.offset + segment.size
    return [
        Block(start, min(block_bytes, end - start))
        for start in range(segment.offset, end, block_bytes)
    ]


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
