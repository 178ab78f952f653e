"""Read a data file back: every block is checked, and a damaged one is named."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from milepost.checkpoint import codec
from milepost.checkpoint.blocks import BLOCKS_ALGORITHM, Tail, block_digest
from milepost.checkpoint.crypt import UserKey
from milepost.checkpoint.datafile import DataFile, DataFiles
from milepost.checkpoint.direct import IO_BYTES
from milepost.checkpoint.image import Image
from milepost.checkpoint.layout import PAGE_BYTES, ArrayPlace, places_from_json
from milepost.errors import DataError

_WORKERS = max(min(2 * (os.cpu_count() or 1), 8), 4)
"""More than cores: while some wait for the disk, others digest what they read."""


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
    path: Path,
    base_path: Callable[[str], Path],
    key: UserKey | None = None,
    digest: str | None = None,
) -> Decoded:
    """Read `path` into new memory and check every block, and all that is between.

    `base_path` gives the file of another generation, by name, that holds blocks of this one.
    `digest` is what the manifest says of the file. Errors: DataError names the file and the block;
    WrongKey; Tampered.
    """
    with DataFiles(base_path, key) as files:
        file = files.open(path)
        if digest is not None and digest.startswith(f"{BLOCKS_ALGORITHM}:"):
            _check_frame(file, digest)
        info = file.tail.info
        places = places_from_json(info["arrays"], info["image_bytes"])
        image = Image(info["image_bytes"], is_inherited=True)
        _fill(image, file, files)
    return Decoded({place.name: _own(image, place) for place in places}, info, file.index)


def read_info(path: Path, key: UserKey | None = None) -> Tail:
    """Only the tail of a data file, checked."""
    with closing(DataFile(path, key)) as file:
        return file.tail


def blocks_digest(path: Path) -> str:
    """The `blake3-blocks` digest of a data file, after each block stored in it was checked, and
    that there are zeros between them.

    Errors: DataError names the damaged block.
    """
    with closing(DataFile(path, None)) as file:
        index, until = file.index, file.until

        def check(group: range) -> None:
            with _stored(file, file, group) as (start, data):
                for n in group:
                    at, end = _span(index[n], start)
                    file.check_stored(index[n], n, data[at:end])
                    file.check_gap(data[end : int(until[n]) - start])

        own = [group for group in _groups(index) if index[group.start]["source"] == 0]
        with ThreadPoolExecutor(_WORKERS, "milepost-verify") as pool:
            list(pool.map(check, own))
        return file.frame_digest()


def _check_frame(file: DataFile, digest: str) -> None:
    if file.frame_digest() != digest:
        raise DataError("its digest differs from the manifest", where=file.path)


@contextmanager
def _stored(file: DataFile, source: DataFile, group: range) -> Iterator[tuple[int, memoryview]]:
    """Offset in the file `source` and bytes of a group of blocks of `file`, with the gap behind."""
    first, last = file.index[group.start], group.stop - 1
    start = int(first["file_offset"])
    end = _span(file.index[last], 0)[1]
    if source is file:
        end = int(file.until[last])
    with source.read(start, end - start) as data:
        yield start, data


def _span(row: Any, start: int) -> tuple[int, int]:
    """Where a stored block lies, counted from `start`."""
    at = int(row["file_offset"]) - start
    return at, at + int(row["stored_size"])


def _fill(image: Image, file: DataFile, files: DataFiles) -> None:
    """Read and check all blocks, in groups that lie together in one file."""
    _ = file.until  # refuses what does not fit, and is computed once, before there are threads
    with ThreadPoolExecutor(_WORKERS, "milepost-decode") as pool:
        jobs = [
            pool.submit(_read_group, image, file, files, group) for group in _groups(file.index)
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


def _read_group(image: Image, file: DataFile, files: DataFiles, group: range) -> None:
    rows = file.index[group.start : group.stop]
    source = files.source(file, int(rows[0]["source"]))
    if source.key is None and _is_straight(rows):
        _read_straight(image, file, source, group)
        return
    with _stored(file, source, group) as (start, data):
        for n, row in zip(group, rows, strict=True):
            at, end = _span(row, start)
            plain = files.decode(file, row, n, data[at:end])
            place = int(row["image_offset"])
            image.view[place : place + len(plain)] = plain
            if source is file:
                file.check_gap(data[end : int(file.until[n]) - start])


def _is_straight(rows: np.ndarray[Any, Any]) -> bool:
    """Do the file and the image hold the same bytes at the same distances, on pages?"""
    shift = rows["file_offset"].astype(np.int64) - rows["image_offset"].astype(np.int64)
    return bool(
        (rows["codec"] == codec.RAW).all()
        and (shift == shift[0]).all()
        and int(shift[0]) % PAGE_BYTES == 0
        and int(rows[0]["image_offset"]) % PAGE_BYTES == 0
    )


def _read_straight(image: Image, file: DataFile, source: DataFile, group: range) -> None:
    """Read into the image without a copy, then check each block where it lies."""
    rows = file.index[group.start : group.stop]
    start = int(rows[0]["image_offset"])
    end = int(rows[-1]["image_offset"]) + int(rows[-1]["size"])
    end += -end % PAGE_BYTES
    begin = int(rows[0]["file_offset"])
    source.reader.read_into(image.view[start:end], begin)
    for n, row in zip(group, rows, strict=True):
        at = int(row["image_offset"])
        stop = at + int(row["size"])
        if block_digest(image.view[at:stop]) != row["digest"].tobytes():
            raise source.damaged(row, n)
        if source is file:
            file.check_gap(image.view[stop : int(file.until[n]) - begin + start])


def _own(image: Image, place: ArrayPlace) -> np.ndarray[Any, Any]:
    return image.array(place)
