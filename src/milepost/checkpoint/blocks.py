"""The frame of a data file: a first page, blocks, a tail with the index, a fixed end.

    page 0          magic, format version, JSON about the key (nothing else is needed to read it)
    blocks          stored blocks, each on a page in a raw file, back to back in an encoded one
    tail            JSON about the arrays and the state, then one index row per block
    last 128 bytes  where the tail is, its digest, magic

docs/formats-checkpoint.md describes every field. The digest of the tail covers the block
digests, and what lies between the parts must be zeros, so a damaged byte anywhere is found.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from milepost.checkpoint.direct import DirectReader
from milepost.checkpoint.layout import PAGE_BYTES
from milepost.errors import DataError

FORMAT_VERSION = 2
_OLDEST_VERSION = 1
BLOCKS_ALGORITHM = "blake3-blocks"
"""Digest of a data file that is not encrypted: blake3 of its first page and of everything from the
tail on. The tail holds the blake3 digest of each stored block, so every byte of data is hashed
once, by many threads."""
MAGIC = b"MILEPOST-CKPT\r\n\x00"
_END_MAGIC = b"MILEPOST-TAIL\r\n\x00"
_END = struct.Struct("<QQQ32s16s")
END_BYTES = 128
_HEAD = struct.Struct("<16sII")
_MAX_TAIL_BYTES = 8 << 30

INDEX = np.dtype(
    [
        ("image_offset", "<u8"),
        ("size", "<u4"),
        ("codec", "<u4"),
        ("source", "<u4"),
        ("stored_size", "<u4"),
        ("file_offset", "<u8"),
        ("number", "<u8"),
        ("digest", "V32"),
        ("stored_digest", "V32"),
        ("xor_source", "<u4"),
        ("xor_number", "<u8"),
    ]
)
"""One row per block. `source` 0 is this file, n is the n-th base of the tail; `number` is the
count of the block among those that its file stores (the nonce of an encrypted block).
`xor_source` n means that the block was XORed with block `xor_number` of the n-th base's file."""
_INDEX_1 = np.dtype([(name, INDEX[name]) for name in (INDEX.names or ())[:-2]])
"""What a row was in format version 1."""


@dataclass(frozen=True, slots=True)
class Tail:
    """What the tail says: `info` is JSON data, `index` an array of INDEX rows."""

    info: dict[str, Any]
    index: np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class StoredTail:
    """The tail of a file as stored (it may be encrypted), where it stands, its format version."""

    offset: int
    data: bytes
    version: int


def pack_head(key_info: dict[str, Any] | None) -> bytes:
    """The first page; `key_info` is None for a file that is not encrypted."""
    text = json.dumps(key_info).encode()
    return (_HEAD.pack(MAGIC, FORMAT_VERSION, len(text)) + text).ljust(PAGE_BYTES, b"\0")


def parse_head(page: bytes, path: Path) -> dict[str, Any] | None:
    """The key information of a file; foreign and newer files are refused by name."""
    magic, version, size = _HEAD.unpack_from(page)
    if magic != MAGIC:
        raise DataError("is not a milepost data file, or its first page is damaged", where=path)
    _check_version(version, path)
    end = _HEAD.size + size
    try:
        value = json.loads(page[_HEAD.size : end])
    except ValueError as error:
        raise DataError("its first page is damaged", where=path) from error
    if any(page[end:]) or not isinstance(value, dict | None):
        raise DataError("its first page is damaged", where=path)
    return value


def pack_tail(tail: Tail) -> bytes:
    """JSON and index rows as one piece, before a possible encryption."""
    text = json.dumps(tail.info, separators=(",", ":"), allow_nan=False).encode()
    return struct.pack("<Q", len(text)) + text + tail.index.tobytes()


def parse_tail(data: bytes, path: Path, version: int = FORMAT_VERSION) -> Tail:
    """Undo `pack_tail`, of any version that was ever written."""
    try:
        (size,) = struct.unpack_from("<Q", data)
        info = json.loads(data[8 : 8 + size])
        index = np.frombuffer(data, INDEX if version > 1 else _INDEX_1, offset=8 + size)
    except (struct.error, ValueError) as error:
        raise DataError("its tail is damaged", where=path) from error
    if not isinstance(info, dict):
        raise DataError("its tail is damaged", where=path)
    return Tail(info, index if version > 1 else _from_version_1(index))


def _from_version_1(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    index = np.zeros(len(rows), INDEX)
    for name in _INDEX_1.names or ():
        index[name] = rows[name]
    return index


def pack_end(offset: int, size: int, digest: bytes) -> bytes:
    """The last bytes of a file whose tail of `size` bytes stands at `offset`."""
    return _END.pack(offset, size, FORMAT_VERSION, digest, _END_MAGIC).rjust(END_BYTES, b"\0")


def read_tail_bytes(reader: DirectReader) -> StoredTail:
    """The tail as stored, after its digest was checked, and that there are zeros around it."""
    if reader.size_bytes < PAGE_BYTES + END_BYTES:
        raise DataError(f"has only {reader.size_bytes} bytes", where=reader.path)
    end = reader.read(reader.size_bytes - END_BYTES, END_BYTES)
    offset, size, version, digest, magic = _END.unpack_from(end, END_BYTES - _END.size)
    if magic != _END_MAGIC or any(end[: END_BYTES - _END.size]):
        raise DataError("its last bytes are damaged", where=reader.path)
    _check_version(version, reader.path)
    room = reader.size_bytes - END_BYTES - offset - size
    if size > _MAX_TAIL_BYTES or not 0 <= room < PAGE_BYTES or offset % PAGE_BYTES:
        raise DataError("its last bytes point outside the file", where=reader.path)
    data = reader.read(offset, size + room)
    if block_digest(data[:size]) != digest or any(data[size:]):
        raise DataError("its tail is damaged: the digest differs", where=reader.path)
    return StoredTail(offset, data[:size], version)


def _check_version(version: int, path: Path) -> None:
    if not _OLDEST_VERSION <= version <= FORMAT_VERSION:
        raise DataError(
            f"has format version {version}; this milepost reads up to {FORMAT_VERSION}",
            where=path,
            fix="use the milepost that wrote it, or a newer one",
        )


def block_digest(data: bytes | memoryview) -> bytes:
    """The blake3 digest of a block; other threads run meanwhile."""
    from blake3 import blake3

    return blake3(data).digest()
