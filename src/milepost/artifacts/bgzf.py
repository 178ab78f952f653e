"""Checks of BAM files: each block with its checksum, the end block, and the header they hold.

Formats: SAM/BAM specification (2024), section 4.1 for BGZF, 4.2 for BAM.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from milepost.artifacts.contents import Artifact

END_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
_HEAD = struct.Struct("<4BI2BH")
_MAGIC = (0x1F, 0x8B, 8, 4)
_MOST_BYTES = 1 << 16
_LEAST_RECORD_BYTES = 32


class Damaged(Exception):
    """Bytes that are no BAM, with the place (bytes from the start of the file) they stand at."""


def bam(artifact: Artifact) -> None:
    """A whole BAM file: every block's checksum, the end block, a header, and whole records.

    `min_records` alignments (0) at least. Bounded memory: one block at a time.
    """
    try:
        with Path(artifact.path).open("rb") as stream:
            count = _records(stream)
    except Damaged as error:
        artifact.fail(f"is cut or damaged ({error})")
    minimum = int(artifact.options.get("min_records", 0)) if artifact.options else 0
    if count < minimum:
        artifact.fail(f"has {count} records, at least {minimum} expected")


def blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """The data of each block, checked against its own length and CRC-32.

    Raises Damaged for anything else, and when the last block is not the empty end block: its
    writer was killed, or the disk was full.
    """
    place, is_end = 0, False
    while head := stream.read(_HEAD.size):
        size_bytes, extra_bytes = _block_size(head, stream, place)
        rest = stream.read(size_bytes - _HEAD.size - extra_bytes)
        if len(rest) < size_bytes - _HEAD.size - extra_bytes:
            raise Damaged(f"the block at byte {place} is cut")
        data = _inflated(rest, place)
        yield data
        is_end = not data and size_bytes == len(END_BLOCK)
        place += size_bytes
    if place == 0:
        raise Damaged("it is empty")
    if not is_end:
        raise Damaged("it lacks its end block: its writer was killed or out of space")


def _block_size(head: bytes, stream: IO[bytes], place: int) -> tuple[int, int]:
    """Bytes of the whole block and of its extra fields."""
    if len(head) < _HEAD.size:
        raise Damaged(f"the block at byte {place} is cut")
    *magic, _mtime, _flags, _system, extra_bytes = _HEAD.unpack(head)
    if tuple(magic) != _MAGIC:
        raise Damaged(f"no BGZF block begins at byte {place}")
    extra = stream.read(extra_bytes)
    at = 0
    while at + 4 <= len(extra):
        length = int.from_bytes(extra[at + 2 : at + 4], "little")
        if extra[at : at + 2] == b"BC" and length == 2:
            size_bytes = int.from_bytes(extra[at + 4 : at + 6], "little") + 1
            if size_bytes >= _HEAD.size + extra_bytes + 8:
                return size_bytes, extra_bytes
        at += 4 + length
    raise Damaged(f"the block at byte {place} does not say how long it is")


def _inflated(rest: bytes, place: int) -> bytes:
    crc, size_bytes = struct.unpack("<II", rest[-8:])
    if size_bytes > _MOST_BYTES:
        raise Damaged(f"the block at byte {place} is longer than a block may be")
    engine = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = engine.decompress(rest[:-8], _MOST_BYTES + 1)
    except zlib.error as error:
        raise Damaged(f"{error} in the block at byte {place}") from error
    if not engine.eof or len(data) != size_bytes or zlib.crc32(data) != crc:
        raise Damaged(f"the checksum of the block at byte {place} is wrong")
    return data


@dataclass(slots=True)
class _Reader:
    """Reads numbers and stretches across the seams of blocks."""

    source: Iterator[bytes]
    data: bytes = b""
    at: int = 0

    def fill(self, count: int) -> bool:
        """Have `count` bytes at `at`; False when the file ends before."""
        while len(self.data) - self.at < count:
            more = next(self.source, None)
            if more is None:
                return False
            self.data, self.at = self.data[self.at :] + more, 0
        return True

    def number(self, what: str) -> int:
        if not self.fill(4):
            raise Damaged(f"it ends within {what}")
        (value,) = struct.unpack_from("<i", self.data, self.at)
        self.at += 4
        if value < 0:
            raise Damaged(f"{what} has a negative length")
        return int(value)

    def skip(self, count: int, what: str) -> None:
        while count > len(self.data) - self.at:
            count -= len(self.data) - self.at
            self.data, self.at = next(self.source, b""), 0
            if not self.data and not self.fill(1):
                raise Damaged(f"it ends within {what}")
        self.at += count


def _records(stream: IO[bytes]) -> int:
    """The number of alignments, each as long as it says."""
    reader = _Reader(blocks(stream))
    if not reader.fill(4) or reader.data[:4] != b"BAM\1":
        raise Damaged("it does not begin as BAM does")
    reader.at = 4
    reader.skip(reader.number("the header"), "the header")
    for _ in range(reader.number("the list of references")):
        reader.skip(reader.number("a reference"), "a reference")
        reader.number("a reference")
    count = 0
    while reader.fill(1):
        size_bytes = reader.number(f"record {count + 1}")
        if size_bytes < _LEAST_RECORD_BYTES:
            raise Damaged(f"record {count + 1} is shorter than a record can be")
        reader.skip(size_bytes, f"record {count + 1}")
        count += 1
    return count
