"""Write an image as a data file: hash, pick the changed blocks, pack, write, all at once.

A raw file is written straight from the image while other threads digest the same memory. A file
that is compressed or encrypted goes block by block through a pool and two buffers.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from milepost.checkpoint import codec
from milepost.checkpoint.blocks import (
    BLOCKS_ALGORITHM,
    END_BYTES,
    INDEX,
    Tail,
    block_digest,
    pack_end,
    pack_head,
    pack_tail,
)
from milepost.checkpoint.crypt import TAG_BYTES, DataKey, UserKey, new_data_key
from milepost.checkpoint.density import Fine, digest_pieces, is_sampled
from milepost.checkpoint.direct import DirectWriter
from milepost.checkpoint.image import Image
from milepost.checkpoint.layout import BLOCK_BYTES, PAGE_BYTES, Block, Layout
from milepost.checkpoint.sink import Sink
from milepost.checkpoint.waves import Waves, Window, whole

_HASH_BYTES = 8 * BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a block of known content is stored: `generation` holds the file."""

    generation: str
    size: int
    codec: int
    stored_size: int
    file_offset: int
    number: int
    stored_digest: bytes


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """How to write a data file. `known` maps block digests to where they are already stored."""

    compression: str = "none"
    key: UserKey | None = None
    known: Mapping[bytes, Stored] | None = None
    tier_bytes_per_s: float | None = None
    is_measured: bool = False
    workers: int = max(min(os.cpu_count() or 1, 4), 2)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file as written; `blocks` is what the next delta may refer to."""

    size_bytes: int
    digest: str
    data_bytes: int
    bases: tuple[str, ...]
    blocks: Mapping[bytes, Stored]
    fine: Fine = field(default_factory=dict)
    changed_share: float = 1.0
    """The part of the blocks' bytes that was stored here, not referred to."""
    write_s: float | None = None
    """Seconds in which the disk was waited for."""


def write_data_file(
    path: Path,
    image: Image | Waves,
    layout: Layout,
    info: Mapping[str, Any],
    generation: str,
    options: EncodeOptions | None = None,
) -> WrittenFile:
    """Write `image` to the new file `path`, durably.

    `info` is JSON data about the state that the tail carries. Blocks whose digest is in
    `options.known` are not written but referred to. `options.is_measured` asks for `fine`, what
    `density` needs.
    """
    options = options or EncodeOptions()
    key, key_info = (None, None) if options.key is None else new_data_key(options.key)
    with ThreadPoolExecutor(options.workers, "milepost-encode") as pool:
        job = _Job(path, image, layout, generation, options, key, pool)
        return job.run(pack_head(key_info), info)


class _Job:
    """One data file being written; the steps share its state."""

    def __init__(
        self,
        path: Path,
        image: Image | Waves,
        layout: Layout,
        generation: str,
        options: EncodeOptions,
        key: DataKey | None,
        pool: ThreadPoolExecutor,
    ) -> None:
        self.path, self.layout, self.pool = path, layout, pool
        self.windows = whole(image, layout) if isinstance(image, Image) else image.windows(layout)
        self.generation, self.options, self.key = generation, options, key
        self.blocks = layout.blocks
        self.index = np.zeros(len(self.blocks), INDEX)
        self.index["image_offset"] = [block.offset for block in self.blocks]
        self.index["size"] = [block.size for block in self.blocks]
        self.bases: list[str] = []
        self.view, self.base = memoryview(b""), 0
        self.items = layout.item_sizes()
        self.offset, self.number = PAGE_BYTES, 0
        self.fine: dict[int, tuple[bytes, ...]] = {}
        self.hash_group = max(_HASH_BYTES // layout.block_bytes, 1)

    def run(self, head: bytes, info: Mapping[str, Any]) -> WrittenFile:
        window = next(self.windows, Window(range(0), 0, self.view))
        code = self._choose(window)
        raw = code == codec.RAW and self.key is None
        with DirectWriter(self.path, self._reserved_bytes(code)) as writer, Sink(writer) as sink:
            sink.append(head)
            sink.pad()
            self._store(sink, window, code, raw)
            for following in self.windows:
                self._store(sink, following, code, raw)
            end = self.offset if raw else sink.offset
            sink.pad()
            digest = f"{BLOCKS_ALGORITHM if raw else 'blake3'}:{self._finish(sink, info)}"
        return WrittenFile(
            writer.size_bytes,
            digest,
            end - PAGE_BYTES,
            tuple(self.bases),
            self._known(),
            self.fine,
            self._changed_share(),
            writer.busy_s,
        )

    def _changed_share(self) -> float:
        sizes = self.index["size"]
        own = int(sizes[self.index["source"] == 0].sum())
        return own / max(int(sizes.sum()), 1)

    def _choose(self, window: Window) -> int:
        """The codec, by what a few blocks of the first window say."""
        self.view, self.base = window.view, window.offset
        plain = [self._plain(n) for n in window.blocks]
        options = self.options
        items = [self.items[n] for n in window.blocks]
        rate, workers = options.tier_bytes_per_s, options.workers
        return codec.choose(options.compression, plain, rate, workers, items)

    def _store(self, sink: Sink, window: Window, code: int, raw: bool) -> None:
        """Digest and store the blocks of a window, whose memory may be used again then."""
        self.view, self.base = window.view, window.offset
        digests = self._start_digests(window.blocks)
        fresh = self._fresh_groups(window.blocks, digests)
        if raw:
            self._store_raw(sink, fresh)
        else:
            self._store_encoded(sink, fresh, code)
        self._set_digests(window.blocks, digests, raw)
        if raw and len(window.blocks) < len(self.blocks):
            sink.drain()

    def _plain(self, n: int) -> memoryview:
        block = self.blocks[n]
        start = block.offset - self.base
        return self.view[start : start + block.size]

    def _reserved_bytes(self, code: int) -> int:
        """What a full, uncompressed file takes; 0 where the size is not known before."""
        if self.options.known or code != codec.RAW:
            return 0
        tail = INDEX.itemsize * len(self.blocks) + 2 * PAGE_BYTES
        return PAGE_BYTES + sum(_up(block.size + TAG_BYTES) for block in self.blocks) + tail

    def _start_digests(self, blocks: range) -> list[Future[list[bytes]]]:
        return [
            self.pool.submit(self._digest_group, start, min(start + self.hash_group, blocks.stop))
            for start in range(blocks.start, blocks.stop, self.hash_group)
        ]

    def _digest_group(self, start: int, stop: int) -> list[bytes]:
        if self.options.is_measured:
            for n in range(start, stop):
                if is_sampled(n, self.layout):
                    self.fine[n] = digest_pieces(self._plain(n))
        return [block_digest(self._plain(n)) for n in range(start, stop)]

    def _fresh_groups(
        self, blocks: range, digests: Sequence[Future[list[bytes]]]
    ) -> Iterator[list[int]]:
        """The blocks to store, as their digests come in; the others refer to where they are."""
        known = self.options.known
        if not known:
            yield list(blocks)
            return
        starts = range(blocks.start, blocks.stop, self.hash_group)
        for start, future in zip(starts, digests, strict=True):
            fresh = []
            for n, digest in enumerate(future.result(), start):
                stored = known.get(digest)
                if stored is None or stored.size != self.blocks[n].size:
                    fresh.append(n)
                else:
                    self._refer(n, stored)
            yield fresh

    def _refer(self, n: int, stored: Stored) -> None:
        if stored.generation not in self.bases:
            self.bases.append(stored.generation)
        row = self.index[n]
        row["source"] = self.bases.index(stored.generation) + 1
        row["codec"], row["stored_size"] = stored.codec, stored.stored_size
        row["file_offset"], row["number"] = stored.file_offset, stored.number
        row["stored_digest"] = np.void(stored.stored_digest)

    def _store_raw(self, sink: Sink, fresh: Iterator[list[int]]) -> None:
        """Whole runs of neighbouring blocks go from the image to the file without a copy."""
        for group in fresh:
            for n in group:
                row = self.index[n]
                row["stored_size"], row["file_offset"] = self.blocks[n].size, self.offset
                row["number"] = self.number
                self.offset += _up(self.blocks[n].size)
                self.number += 1
            for start, stop in _runs([self.blocks[n] for n in group]):
                sink.append_pages(self.view[start - self.base : stop - self.base])

    def _store_encoded(self, sink: Sink, fresh: Iterator[list[int]], code: int) -> None:
        """Compressed or encrypted blocks stand back to back."""
        blocks = (n for group in fresh for n in group)
        for n, number, used, packed, digest, buffer in self._encode_all(blocks, code):
            row = self.index[n]
            row["codec"], row["stored_size"], row["number"] = used, len(packed), number
            row["file_offset"] = sink.offset
            row["stored_digest"] = np.void(digest)
            sink.append(packed)
            self._buffers.put(buffer)

    def _encode_all(self, fresh: Iterable[int], code: int) -> Iterator[Any]:
        """Encode in order, a few blocks ahead of the one that is being packed."""
        ahead = 2 * self.options.workers
        self._buffers: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
        for _ in range(ahead + 1):
            self._buffers.put(bytearray(BLOCK_BYTES + TAG_BYTES if self.key else 0))
        waiting: list[Future[Any]] = []
        for n in fresh:
            if len(waiting) == ahead:
                yield waiting.pop(0).result()
            buffer = self._buffers.get()
            waiting.append(self.pool.submit(self._encode, n, self.number, code, buffer))
            self.number += 1
        for future in waiting:
            yield future.result()

    def _encode(self, n: int, number: int, code: int, buffer: bytearray) -> tuple[Any, ...]:
        used, packed = codec.compress(code, self._plain(n), self.items[n])
        if self.key is not None:
            length = self.key.encrypt_block(number, packed, memoryview(buffer))
            packed = memoryview(buffer)[:length]
        return n, number, used, packed, block_digest(packed), buffer

    def _set_digests(
        self, blocks: range, digests: Sequence[Future[list[bytes]]], raw: bool
    ) -> None:
        rows = self.index[blocks.start : blocks.stop]
        rows["digest"] = np.frombuffer(b"".join(_flat(digests)), "V32")
        if raw:
            own = rows["source"] == 0
            rows["stored_digest"][own] = rows["digest"][own]

    def _finish(self, sink: Sink, info: Mapping[str, Any]) -> str:
        tail_info = {
            **info,
            "generation": self.generation,
            "image_bytes": self.layout.image_bytes,
            "bases": self.bases,
            "arrays": [place.as_json() for place in self.layout.arrays],
        }
        tail = pack_tail(Tail(tail_info, self.index))
        if self.key is not None:
            tail = self.key.encrypt_tail(tail)
        offset = sink.offset
        sink.append(tail)
        sink.append(bytes(-(sink.offset + END_BYTES) % PAGE_BYTES))
        sink.append(pack_end(offset, len(tail), block_digest(tail)))
        return sink.finish()

    def _known(self) -> dict[bytes, Stored]:
        return known_blocks(self.index, (self.generation, *self.bases))


def known_blocks(index: np.ndarray[Any, Any], sources: Sequence[str]) -> dict[bytes, Stored]:
    """Block digest -> where it is stored, from the index of a data file and its sources."""
    return {
        digest.tobytes(): Stored(
            sources[source], size, code, stored_size, offset, number, stored_digest.tobytes()
        )
        for digest, source, size, code, stored_size, offset, number, stored_digest in zip(
            index["digest"],
            index["source"].tolist(),
            index["size"].tolist(),
            index["codec"].tolist(),
            index["stored_size"].tolist(),
            index["file_offset"].tolist(),
            index["number"].tolist(),
            index["stored_digest"],
            strict=True,
        )
    }


def _flat(groups: Sequence[Future[list[bytes]]]) -> Iterator[bytes]:
    for group in groups:
        yield from group.result()


def _runs(blocks: Sequence[Block]) -> Iterator[tuple[int, int]]:
    """Page ranges of the image that hold `blocks`, neighbours joined."""
    start = stop = -1
    for block in blocks:
        if block.offset != stop:
            if stop > start:
                yield start, stop
            start = block.offset
        stop = block.offset + _up(block.size)
    if stop > start:
        yield start, stop


def _up(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES
