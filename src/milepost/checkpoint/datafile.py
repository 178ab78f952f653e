"""Open data files of one rank, by generation, and the blocks in them: checked, in the clear."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from milepost.checkpoint import codec
from milepost.checkpoint.blocks import (
    BLOCKS_ALGORITHM,
    StoredTail,
    Tail,
    block_digest,
    parse_head,
    parse_tail,
    read_tail_bytes,
)
from milepost.checkpoint.crypt import TAG_BYTES, UserKey, open_data_key
from milepost.checkpoint.direct import IO_BYTES, DirectReader
from milepost.checkpoint.image import Image
from milepost.checkpoint.layout import BLOCK_BYTES, PAGE_BYTES
from milepost.checkpoint.stored import DEPTH_SHIFT
from milepost.durable import new_hasher
from milepost.errors import DataError

_MAX_IMAGE_BYTES = 1 << 46
_CODEC_MASK = (1 << DEPTH_SHIFT) - 1


class ReadMemory:
    """Buffers to read into, made once and lent again; a few are kept."""

    kept_bytes = IO_BYTES + 2 * BLOCK_BYTES
    """The size of one that is kept: a group of blocks with what encryption adds."""
    kept_count = 4

    def __init__(self) -> None:
        self._free: list[Image] = []

    @contextmanager
    def lent(self, size_bytes: int) -> Iterator[Image]:
        image = self._take() if size_bytes <= self.kept_bytes else Image(size_bytes)
        try:
            yield image
        finally:
            if image.capacity_bytes == self.kept_bytes and len(self._free) < self.kept_count:
                self._free.append(image)

    def _take(self) -> Image:
        try:
            return self._free.pop()  # two threads never get the same
        except IndexError:
            return Image(self.kept_bytes)


read_memory = ReadMemory()


class DataFile:
    """One data file. Its tail is read when it is first needed, and checked."""

    def __init__(self, path: Path, key: UserKey | None) -> None:
        try:
            self.reader = DirectReader(path)
        except FileNotFoundError as error:
            raise DataError("is missing", where=path) from error
        self.path = path
        try:
            if self.reader.size_bytes < PAGE_BYTES:
                raise DataError(f"has only {self.reader.size_bytes} bytes", where=path)
            self._head = self.reader.read(0, PAGE_BYTES)
            info = parse_head(self._head, path)
            self.key = None if info is None else open_data_key(info, key, path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.reader.close()

    @cached_property
    def stored_tail(self) -> StoredTail:
        return read_tail_bytes(self.reader)

    @cached_property
    def tail(self) -> Tail:
        stored = self.stored_tail
        data = stored.data if self.key is None else self.key.decrypt_tail(stored.data)
        tail = parse_tail(data, self.path, stored.version)
        _check_tail(tail, self.path)
        return tail

    @property
    def index(self) -> np.ndarray[Any, Any]:
        return self.tail.index

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The generation of this file and its bases: what the index means by 0, 1, 2, …"""
        return (self.tail.info["generation"], *self.tail.info["bases"])

    @cached_property
    def _rows(self) -> dict[int, int]:
        own = np.flatnonzero(self.index["source"] == 0)
        return dict(zip(self.index["number"][own].tolist(), own.tolist(), strict=True))

    def row(self, number: int) -> Any:
        """The index row of the block that this file stores under `number`."""
        n = self._rows.get(number)
        if n is None:
            raise DataError(f"stores no block {number}", where=self.path)
        return self.index[n]

    @cached_property
    def until(self) -> np.ndarray[Any, Any]:
        """For each block stored here where the next part of the file begins; -1 for others.

        Between are less than a page of zeros, else a DataError.
        """
        own = self.index["source"] == 0
        begins = self.index["file_offset"][own].astype(np.int64)
        ends = begins + self.index["stored_size"][own]
        nexts = np.append(begins[1:], self.stored_tail.offset)
        first = begins[0] if len(begins) else self.stored_tail.offset
        gaps = nexts - ends if len(begins) else np.zeros(0, np.int64)
        if first != PAGE_BYTES or (gaps < 0).any() or (gaps >= PAGE_BYTES).any():
            raise DataError("its blocks do not follow each other", where=self.path)
        until = np.full(len(self.index), -1, np.int64)
        until[own] = nexts
        return until

    def frame_digest(self) -> str:
        """The `blake3-blocks` digest: of the first page, and of everything from the tail on."""
        offset = self.stored_tail.offset
        hasher = new_hasher()
        hasher.update(self._head)
        hasher.update(self.reader.read(offset, self.reader.size_bytes - offset))
        return f"{BLOCKS_ALGORITHM}:{hasher.hexdigest()}"

    @contextmanager
    def read(self, start: int, size: int) -> Iterator[memoryview]:
        """Bytes of the file, in memory that is used again afterwards."""
        shift = start % PAGE_BYTES
        pages = -(-(size + shift) // PAGE_BYTES) * PAGE_BYTES
        with read_memory.lent(pages) as image:
            self.reader.read_into(image.view[:pages], start - shift)
            yield image.view[shift : shift + size]

    def check_stored(self, row: Any, n: int, stored: memoryview) -> None:
        if block_digest(stored) != row["stored_digest"].tobytes():
            raise self.damaged(row, n)

    def check_gap(self, gap: memoryview) -> None:
        if any(gap):
            raise DataError("is damaged between its blocks, where zeros should be", where=self.path)

    def damaged(self, row: Any, n: int) -> DataError:
        start = int(row["file_offset"])
        return DataError(
            f"block {n} is damaged (bytes {start} to {start + int(row['stored_size'])}): "
            "its digest differs",
            where=self.path,
        )


class DataFiles:
    """The data files of one rank in several generations; each is opened once, when needed.

    `base_path` gives the file of a generation. Several threads may ask.
    """

    def __init__(self, base_path: Callable[[str], Path], key: UserKey | None = None) -> None:
        self._base_path, self._key = base_path, key
        self._files: dict[str, DataFile] = {}
        self._lock, self._stack = threading.RLock(), ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def open(self, path: Path) -> DataFile:
        """Open `path`, which is known by the name of its generation from now on."""
        file = DataFile(path, self._key)
        self._stack.callback(file.close)
        with self._lock:
            self._files[file.sources[0]] = file
        return file

    def of(self, generation: str) -> DataFile:
        with self._lock:
            if generation not in self._files:
                file = DataFile(self._base_path(generation), self._key)
                self._stack.callback(file.close)
                self._files[generation] = file
            return self._files[generation]

    def source(self, file: DataFile, number: int) -> DataFile:
        """The file that the index of `file` means by `number`."""
        return self.of(file.sources[number])

    def plain(self, file: DataFile, row: Any, n: int) -> bytes | memoryview:
        """Read one block of the state that `file` holds, wherever it is stored, and check it."""
        source = self.source(file, int(row["source"]))
        with source.read(int(row["file_offset"]), int(row["stored_size"])) as stored:
            unpacked = self._unpack(source, row, n, stored)
            if unpacked is stored:
                unpacked = bytes(stored)
        return self._finish(file, row, n, unpacked)

    def decode(self, file: DataFile, row: Any, n: int, stored: memoryview) -> bytes | memoryview:
        """The plain bytes of a block of `file`, from what is stored of it."""
        source = self.source(file, int(row["source"]))
        return self._finish(file, row, n, self._unpack(source, row, n, stored))

    def _unpack(self, source: DataFile, row: Any, n: int, stored: memoryview) -> bytes | memoryview:
        source.check_stored(row, n, stored)
        packed: bytes | memoryview = stored
        if source.key is not None:
            packed = source.key.decrypt_block(int(row["number"]), stored)
        return codec.decompress(int(row["codec"]) & _CODEC_MASK, packed, int(row["size"]))

    def _finish(
        self, file: DataFile, row: Any, n: int, plain: bytes | memoryview
    ) -> bytes | memoryview:
        """Undo the XOR, if there is one, and check what came out."""
        depth = int(row["codec"]) >> DEPTH_SHIFT
        if depth:
            plain = codec.xor(plain, self._base_of(file, row, depth))
        if block_digest(plain) != row["digest"].tobytes():
            raise self.source(file, int(row["source"])).damaged(row, n)
        return plain

    def _base_of(self, file: DataFile, row: Any, depth: int) -> bytes | memoryview:
        """The block that a block was XORed with; each step down has to be less deep."""
        if not 0 < int(row["xor_source"]) < len(file.sources):
            raise DataError("its index names no base of a block", where=file.path)
        base = self.source(file, int(row["xor_source"]))
        below = base.row(int(row["xor_number"]))
        if int(below["codec"]) >> DEPTH_SHIFT >= depth or below["size"] != row["size"]:
            raise DataError("its index names a base that does not fit", where=file.path)
        return self.plain(base, below, int(row["xor_number"]))


def _check_tail(tail: Tail, path: Path) -> None:
    """Refuse a tail whose numbers do not fit each other, before any memory is allocated."""
    image_bytes, bases = tail.info.get("image_bytes"), tail.info.get("bases")
    if type(image_bytes) is not int or not 0 <= image_bytes <= _MAX_IMAGE_BYTES:
        raise DataError(f"an image of {image_bytes!r} bytes", where=path)
    if not isinstance(bases, list) or not all(isinstance(name, str) for name in bases):
        raise DataError("its list of bases is damaged", where=path)
    if not isinstance(tail.info.get("generation"), str):
        raise DataError("does not say of which generation it is", where=path)
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
