"""Write an image as a data file: hash, pick the changed blocks, pack, write, all at once.

The work begins with the first blocks that the application has copied. A raw file is written
straight from the image while other threads digest the same memory. A file that is compressed or
encrypted goes block by block through a pool and buffers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from milepost.checkpoint import codec
from milepost.checkpoint.base import Base
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
from milepost.checkpoint.density import Fine
from milepost.checkpoint.digests import Digester, joined
from milepost.checkpoint.direct import DirectWriter
from milepost.checkpoint.image import Image
from milepost.checkpoint.layout import PAGE_BYTES, Block, Layout
from milepost.checkpoint.pack import Packed, Packer, Tools
from milepost.checkpoint.sink import Sink
from milepost.checkpoint.staging import Staging, Whole, Window
from milepost.checkpoint.stored import Stored, known_blocks

PATIENT_BYTES_PER_S = 1.5e9
"""A tier that is slower may be worth a codec; the probe then waits for the whole copy, to look at
all of the state."""


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """How to write a data file.

    `known` maps block digests to where they are already stored, `base` reads blocks of the
    generation before for XOR. `is_measured` asks for `WrittenFile.fine`, what `density` needs.
    """

    compression: str = "none"
    key: UserKey | None = None
    known: Mapping[bytes, Stored] | None = None
    tier_bytes_per_s: float | None = None
    is_measured: bool = False
    base: Base | None = None
    tools: Tools | None = None

    @property
    def is_patient(self) -> bool:
        """Is the copy waited for, so that the probe sees all of the state?"""
        rate = self.tier_bytes_per_s
        is_slow = rate is not None and rate < PATIENT_BYTES_PER_S
        return self.compression == "zstd" or (self.compression == "auto" and is_slow)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file as written; `sources` are its generation and its bases."""

    size_bytes: int
    digest: str
    data_bytes: int
    sources: tuple[str, ...]
    index: np.ndarray[Any, Any] = field(repr=False)
    code: int = codec.RAW
    fine: Fine = field(default_factory=dict, repr=False)
    write_s: float | None = None
    """Seconds in which the disk was waited for."""

    @property
    def bases(self) -> tuple[str, ...]:
        return self.sources[1:]

    @property
    def blocks(self) -> dict[bytes, Stored]:
        """What the next delta may refer to."""
        return known_blocks(self.index, self.sources)

    @property
    def changed_share(self) -> float:
        """The part of the blocks' bytes that was stored here, not referred to."""
        sizes = self.index["size"]
        own = int(sizes[self.index["source"] == 0].sum())
        return own / max(int(sizes.sum()), 1)


def write_data_file(
    path: Path,
    image: Image | Staging,
    layout: Layout,
    info: Mapping[str, Any],
    generation: str,
    options: EncodeOptions | None = None,
) -> WrittenFile:
    """Write `image` to the new file `path`, durably.

    `info` is JSON data about the state that the tail carries. Blocks whose digest is in
    `options.known` are not written but referred to.
    """
    options = options or EncodeOptions()
    key, key_info = (None, None) if options.key is None else new_data_key(options.key)
    staging = Whole.of_filled(image, layout) if isinstance(image, Image) else image
    with ExitStack() as stack:
        tools = options.tools
        if tools is None:
            tools = stack.enter_context(closing(Tools()))
        job = _Job(path, staging, layout, generation, options, key, tools)
        try:
            return job.run(pack_head(key_info), info)
        except BaseException:
            staging.give_up()  # a copy that waits for the writer would wait for ever
            tools.stop()
            raise


class _Job:
    """One data file being written; the steps share its state."""

    def __init__(
        self,
        path: Path,
        staging: Staging,
        layout: Layout,
        generation: str,
        options: EncodeOptions,
        key: DataKey | None,
        tools: Tools,
    ) -> None:
        self.path, self.layout, self.tools, self.staging = path, layout, tools, staging
        self.windows = staging.windows(layout, options.is_patient)
        self.generation, self.options, self.key = generation, options, key
        self.blocks = layout.blocks
        self.index = np.zeros(len(self.blocks), INDEX)
        self.index["image_offset"] = [block.offset for block in self.blocks]
        self.index["size"] = [block.size for block in self.blocks]
        self.bases: list[str] = []
        self.code = codec.RAW
        self.offset, self.number = PAGE_BYTES, 0
        self.packer = Packer(key, layout, options.base, tools)
        self.writer: DirectWriter | None = None
        self.digester = Digester(
            tools.pool, staging, layout, self._written_bytes, options.is_measured
        )

    def _written_bytes(self) -> int:
        return 0 if self.writer is None else self.writer.size_bytes

    def run(self, head: bytes, info: Mapping[str, Any]) -> WrittenFile:
        first = next(self.windows, None)
        if first is not None:
            self.code = self.packer.choose(
                self.options.compression, first, self.options.tier_bytes_per_s
            )
        most = self._most_bytes()
        at_once = most if self.code == codec.RAW and not self.options.known else 0
        with (
            DirectWriter(self.path, at_once) as writer,
            Sink(writer, self.tools.sink, most) as sink,
        ):
            self.writer = writer
            sink.append(head)
            sink.pad()
            sink.is_digesting = self.key is not None
            self._store_all(sink, first)
            end = sink.offset
            sink.pad()
            sink.is_digesting = True
            digest = self._finish(sink, info)
        algorithm = BLOCKS_ALGORITHM if self.key is None else "blake3"
        return WrittenFile(
            writer.size_bytes,
            f"{algorithm}:{digest}",
            end - PAGE_BYTES,
            (self.generation, *self.bases),
            self.index,
            self.code,
            self.digester.fine,
            writer.busy_s,
        )

    def _most_bytes(self) -> int:
        """What the file takes when every block is stored as it is."""
        tail = INDEX.itemsize * len(self.blocks) + 2 * PAGE_BYTES
        return PAGE_BYTES + sum(_up(block.size + TAG_BYTES) for block in self.blocks) + tail

    def _store_all(self, sink: Sink, first: Window | None) -> None:
        """Store window after window; where memory allows, the next is being digested meanwhile."""
        ahead = 0 if self.staging.is_recycled else 1
        waiting: deque[tuple[Window, list[Future[list[bytes]]]]] = deque()
        done: list[tuple[Window, list[Future[list[bytes]]]]] = []
        for window in _chained(first, self.windows):
            waiting.append((window, self.digester.begin(window)))
            if len(waiting) > ahead:
                done.append(waiting.popleft())
                self._store(sink, *done[-1])
                if self.staging.is_recycled:
                    self._set_digests(*done.pop())
                    sink.drain()
        for window, digests in waiting:
            self._store(sink, window, digests)
        for window, digests in (*done, *waiting):
            self._set_digests(window, digests)

    def _store(self, sink: Sink, window: Window, digests: Sequence[Future[list[bytes]]]) -> None:
        fresh = self._fresh_groups(window.blocks, digests)
        if self.code == codec.RAW and self.key is None:
            self._store_raw(sink, fresh, window)
        else:
            self._store_packed(sink, fresh, window)

    def _fresh_groups(
        self, blocks: range, digests: Sequence[Future[list[bytes]]]
    ) -> Iterator[list[int]]:
        """The blocks to store, as their digests come in; the others refer to where they are."""
        known = self.options.known
        if not known:
            yield list(blocks)
            return
        for start, future in zip(self.digester.starts(blocks), digests, strict=True):
            fresh = []
            for n, digest in enumerate(future.result(), start):
                stored = known.get(digest)
                if stored is None or stored.size != self.blocks[n].size:
                    fresh.append(n)
                else:
                    self._refer(n, stored)
            yield fresh

    def _refer(self, n: int, stored: Stored) -> None:
        row = self.index[n]
        row["source"] = self._source(stored.generation)
        row["codec"], row["stored_size"] = stored.codec, stored.stored_size
        row["file_offset"], row["number"] = stored.file_offset, stored.number
        row["stored_digest"] = np.void(stored.stored_digest)
        if stored.xor is not None:
            row["xor_source"], row["xor_number"] = self._source(stored.xor[0]), stored.xor[1]
        for name in stored.needs:
            self._source(name)

    def _source(self, generation: str) -> int:
        """The number of a base, which is one from now on."""
        if generation not in self.bases:
            self.bases.append(generation)
        return self.bases.index(generation) + 1

    def _store_raw(self, sink: Sink, fresh: Iterator[list[int]], window: Window) -> None:
        """Runs of neighbouring blocks go from the image to the file, large ones without a copy."""
        for group in fresh:
            for n in group:
                row = self.index[n]
                row["stored_size"], row["file_offset"] = self.blocks[n].size, self.offset
                row["number"] = self.number
                self.offset += _up(self.blocks[n].size)
                self.number += 1
            for start, stop in _runs([self.blocks[n] for n in group]):
                sink.append_pages(window.view[start - window.offset : stop - window.offset])

    def _store_packed(self, sink: Sink, fresh: Iterator[list[int]], window: Window) -> None:
        """Compressed or encrypted blocks stand back to back."""
        blocks = (n for group in fresh for n in group)

        def put(one: Packed) -> None:
            row = self.index[one.n]
            row["codec"], row["stored_size"] = one.codec, len(one.data)
            row["file_offset"], row["number"] = sink.offset, one.number
            row["stored_digest"] = np.void(one.digest)
            if one.xor is not None:
                row["xor_source"], row["xor_number"] = self._source(one.xor[0]), one.xor[1]
            for name in one.needs:
                self._source(name)
            sink.append(one.data)

        self.number = self.packer.pack_all(window, blocks, self.code, self.number, put)

    def _set_digests(self, window: Window, digests: Sequence[Future[list[bytes]]]) -> None:
        rows = self.index[window.blocks.start : window.blocks.stop]
        rows["digest"] = np.frombuffer(joined(digests), "V32")
        if self.code == codec.RAW and self.key is None:
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


def _chained(first: Window | None, windows: Iterator[Window]) -> Iterator[Window]:
    if first is not None:
        yield first
        yield from windows


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
