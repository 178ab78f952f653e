"""Read a data file back: every block is checked, and a damaged one is named."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from milepost.checkpoint import codec
from milepost.checkpoint.blocks import (
    BLOCKS_ALGORITHM,
    Tail,
    block_digest,
    parse_head,
    parse_tail,
    read_tail_bytes,
)
from milepost.checkpoint.crypt import TAG_BYTES, DataKey, UserKey, open_data_key
from milepost.checkpoint.direct import IO_BYTES, DirectReader
from milepost.checkpoint.image import Image
from milepost.checkpoint.layout import BLOCK_BYTES, PAGE_BYTES, ArrayPlace, places_from_json
from milepost.durable import new_hasher
from milepost.errors import DataError

_local = threading.local()
_MAX_IMAGE_BYTES = 1 << 46
_WORKERS = max(min(os.cpu_count() or 1, 4), 2)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The arrays of a data file, `info` (its JSON data) and its index for the next delta."""

    arrays: dict[str, np.ndarray[Any, Any]]
    info: dict[str, Any]
    index: np.ndarray[Any, Any]

    @property
    def bases(self) -> tuple[str, ...]:
        return tuple(self.info["bases"])


def read_data_file(
    path: Path, base_path: Callable[[str], Path], key: UserKey | None = None
) -> Decoded:
    """Read `path` into new memory and check every block.

    `base_path` gives the file of another generation, by name, that holds blocks of this one.
    Errors: DataError names the file and the block; WrongKey; Tampered.
    """
    with ExitStack() as stack:
        source = _open(path, key, stack)
        tail = _read_tail(source)
        places = places_from_json(tail.info["arrays"], tail.info["image_bytes"])
        sources = [source, *(_open(base_path(name), key, stack) for name in tail.info["bases"])]
        image = Image(tail.info["image_bytes"])
        _fill(image, tail.index, sources)
    return Decoded({place.name: _own(image, place) for place in places}, tail.info, tail.index)


def read_info(path: Path, key: UserKey | None = None) -> Tail:
    """Only the tail of a data file, checked."""
    with ExitStack() as stack:
        return _read_tail(_open(path, key, stack))


def blocks_digest(path: Path) -> str:
    """The `blake3-blocks` digest of a raw data file, after each block in it was checked.

    Errors: DataError names the damaged block.
    """
    with ExitStack() as stack:
        source = _open(path, None, stack)
        tail = _read_tail(source)
        own = [group for group in _groups(tail.index) if tail.index[group.start]["source"] == 0]
        with ThreadPoolExecutor(_WORKERS, "milepost-verify") as pool:
            list(pool.map(lambda group: _check_group(tail.index, group, source), own))
        offset, _ = read_tail_bytes(source.reader)
        hasher = new_hasher()
        hasher.update(source.reader.read(0, PAGE_BYTES))
        hasher.update(source.reader.read(offset, source.reader.size_bytes - offset))
    return f"{BLOCKS_ALGORITHM}:{hasher.hexdigest()}"


def _check_group(index: np.ndarray[Any, Any], group: range, source: _Source) -> None:
    start, data = _read_stored(index, group, source)
    for n in group:
        row = index[n]
        at = int(row["file_offset"]) - start
        if block_digest(data[at : at + int(row["stored_size"])]) != row["stored_digest"].tobytes():
            raise _damaged(source, n, row)


def _read_stored(
    index: np.ndarray[Any, Any], group: range, source: _Source
) -> tuple[int, memoryview]:
    """Offset in the file and bytes of a group, read into this thread's own memory."""
    first, last = index[group.start], index[group.stop - 1]
    start = int(first["file_offset"])
    size = int(last["file_offset"]) + int(last["stored_size"]) - start
    shift = start % PAGE_BYTES
    pages = -(-(size + shift) // PAGE_BYTES) * PAGE_BYTES
    if not hasattr(_local, "image") or _local.image.capacity_bytes < pages:
        _local.image = Image(max(pages, IO_BYTES + BLOCK_BYTES))
    source.reader.read_into(_local.image.view[:pages], start - shift)
    return start, _local.image.view[shift : shift + size]


@dataclass(frozen=True, slots=True)
class _Source:
    """An open data file and its key; `aligned` says that blocks stand on pages, in the clear."""

    reader: DirectReader
    key: DataKey | None


def _open(path: Path, key: UserKey | None, stack: ExitStack) -> _Source:
    try:
        reader = stack.enter_context(DirectReader(path))
    except FileNotFoundError as error:
        raise DataError("is missing", where=path) from error
    if reader.size_bytes < PAGE_BYTES:
        raise DataError(f"has only {reader.size_bytes} bytes", where=path)
    info = parse_head(reader.read(0, PAGE_BYTES), path)
    return _Source(reader, None if info is None else open_data_key(info, key, path))


def _read_tail(source: _Source) -> Tail:
    path = source.reader.path
    _, data = read_tail_bytes(source.reader)
    tail = parse_tail(data if source.key is None else source.key.decrypt_tail(data), path)
    _check_tail(tail, path)
    return tail


def _check_tail(tail: Tail, path: Path) -> None:
    """Refuse a tail whose numbers do not fit each other, before any memory is allocated."""
    image_bytes, bases = tail.info.get("image_bytes"), tail.info.get("bases")
    if type(image_bytes) is not int or not 0 <= image_bytes <= _MAX_IMAGE_BYTES:
        raise DataError(f"an image of {image_bytes!r} bytes", where=path)
    if not isinstance(bases, list) or not all(isinstance(name, str) for name in bases):
        raise DataError("its list of bases is damaged", where=path)
    if not isinstance(tail.info.get("arrays"), list):
        raise DataError("its table of arrays is damaged", where=path)
    index, limit = tail.index, BLOCK_BYTES + TAG_BYTES
    ends = index["image_offset"].astype(object) + index["size"]
    if len(index) and (
        max(ends) > image_bytes
        or int(index["size"].max()) > BLOCK_BYTES
        or int(index["stored_size"].max()) > limit
        or int(index["source"].max()) > len(bases)
    ):
        raise DataError("its index points outside the image", where=path)


def _fill(image: Image, index: np.ndarray[Any, Any], sources: list[_Source]) -> None:
    """Read and check all blocks, in groups that lie together in one file."""
    with ThreadPoolExecutor(_WORKERS, "milepost-decode") as pool:
        jobs = [
            pool.submit(_read_group, image, index, group, sources[index["source"][group.start]])
            for group in _groups(index)
        ]
        for job in jobs:
            job.result()


def _groups(index: np.ndarray[Any, Any]) -> Iterator[range]:
    """Runs of rows that are neighbours in the same file; at most 8 MiB each."""
    start = 0
    ends = np.cumsum(index["size"].astype(np.int64)) if len(index) else index["size"]
    for n in range(1, len(index) + 1):
        is_end = n == len(index)
        begun = ends[start] - int(index["size"][start])
        if is_end or ends[n] - begun > IO_BYTES or not _joined(index, n):
            yield range(start, n)
            start = n


def _joined(index: np.ndarray[Any, Any], n: int) -> bool:
    before, row = index[n - 1], index[n]
    return bool(
        before["source"] == row["source"]
        and 0
        <= int(row["file_offset"]) - int(before["file_offset"]) - int(before["stored_size"])
        < PAGE_BYTES
    )


def _read_group(image: Image, index: np.ndarray[Any, Any], group: range, source: _Source) -> None:
    rows = index[group.start : group.stop]
    if source.key is None and _is_straight(rows):
        _read_straight(image, rows, group, source)
        return
    start, data = _read_stored(index, group, source)
    for n, row in zip(group, rows, strict=True):
        at = int(row["file_offset"]) - start
        _decode_block(image, row, data[at : at + int(row["stored_size"])], n, source)


def _is_straight(rows: np.ndarray[Any, Any]) -> bool:
    """Do the file and the image hold the same bytes at the same distances, on pages?"""
    shift = rows["file_offset"].astype(np.int64) - rows["image_offset"].astype(np.int64)
    return bool(
        (rows["codec"] == codec.RAW).all()
        and (shift == shift[0]).all()
        and int(shift[0]) % PAGE_BYTES == 0
        and int(rows[0]["image_offset"]) % PAGE_BYTES == 0
    )


def _read_straight(image: Image, rows: np.ndarray[Any, Any], group: range, source: _Source) -> None:
    """Read into the image without a copy, then check each block where it lies."""
    start = int(rows[0]["image_offset"])
    end = int(rows[-1]["image_offset"]) + int(rows[-1]["size"])
    end += -end % PAGE_BYTES
    source.reader.read_into(image.view[start:end], int(rows[0]["file_offset"]))
    for n, row in zip(group, rows, strict=True):
        at = int(row["image_offset"])
        plain = image.view[at : at + int(row["size"])]
        if block_digest(plain) != row["digest"].tobytes():
            raise _damaged(source, n, row)


def _decode_block(image: Image, row: Any, stored: memoryview, n: int, source: _Source) -> None:
    if block_digest(stored) != row["stored_digest"].tobytes():
        raise _damaged(source, n, row)
    packed: bytes | memoryview = stored
    if source.key is not None:
        packed = source.key.decrypt_block(int(row["number"]), stored)
    plain = codec.decompress(int(row["codec"]), packed, int(row["size"]))
    if block_digest(plain) != row["digest"].tobytes():
        raise _damaged(source, n, row)
    at = int(row["image_offset"])
    image.view[at : at + len(plain)] = plain


def _damaged(source: _Source, n: int, row: Any) -> DataError:
    start = int(row["file_offset"])
    return DataError(
        f"block {n} is damaged (bytes {start} to {start + int(row['stored_size'])}): "
        "its digest differs",
        where=source.reader.path,
    )


def _own(image: Image, place: ArrayPlace) -> np.ndarray[Any, Any]:
    return image.array(place)
