"""Compress and encrypt blocks, several at once, in order."""

from __future__ import annotations

import functools
import os
import queue
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from milepost.checkpoint import codec
from milepost.checkpoint.base import Base, BaseBlock
from milepost.checkpoint.blocks import block_digest
from milepost.checkpoint.crypt import TAG_BYTES, DataKey
from milepost.checkpoint.image import Image
from milepost.checkpoint.layout import BLOCK_BYTES, Layout
from milepost.checkpoint.sink import new_buffers
from milepost.checkpoint.staging import Window
from milepost.checkpoint.stored import DEPTH_SHIFT

WORKERS = max(min(os.cpu_count() or 1, 4), 2)


class Tools:
    """Threads and memory that the writing of a file needs besides the image; made once, and used
    again for the next file. The threads keep what they read blocks of a base into."""

    def __init__(self) -> None:
        self.pool = _new_pool()
        self._blocks: list[bytearray] = []

    @functools.cached_property
    def sink(self) -> tuple[Image, ...]:
        """What `Sink` gathers in."""
        return new_buffers()

    def blocks(self, count: int) -> list[bytearray]:
        """`count` buffers that hold an encrypted block each."""
        while len(self._blocks) < count:
            self._blocks.append(bytearray(BLOCK_BYTES + TAG_BYTES))
        return self._blocks[:count]

    def stop(self) -> None:
        """A file failed: wait until nothing works on it any more."""
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.pool = _new_pool()

    def close(self) -> None:
        self.pool.shutdown(wait=True)


def _new_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WORKERS, "milepost-encode")


@dataclass(frozen=True, slots=True)
class Packed:
    """Block `n` as it is stored: `data` is only valid until the next one is asked for."""

    n: int
    number: int
    codec: int
    data: bytes | memoryview
    digest: bytes
    xor: tuple[str, int] | None = None
    needs: tuple[str, ...] = ()


class Packer:
    """Packs the blocks of one file. Their numbers are the nonces, so each is used once."""

    def __init__(
        self,
        key: DataKey | None,
        layout: Layout,
        base: Base | None,
        tools: Tools,
    ) -> None:
        self._key, self._base, self._tools = key, base, tools
        self._blocks, self._items = layout.blocks, layout.item_sizes()

    def choose(self, compression: str, window: Window, tier_bytes_per_s: float | None) -> int:
        """The codec, by what a few blocks of a window say."""
        blocks = [
            codec.Sample(
                window.plain(self._blocks[n]),
                self._items[n],
                functools.partial(self._base_bytes_at, n),
            )
            for n in window.blocks
        ]
        is_based = self._base is not None and any(self._find(n) for n in window.blocks)
        return codec.choose(compression, blocks, tier_bytes_per_s, WORKERS, is_based=is_based)

    def pack_all(
        self,
        window: Window,
        fresh: Iterable[int],
        code: int,
        number: int,
        put: Callable[[Packed], None],
    ) -> int:
        """Give each block to `put`, in order, numbered from `number` on; returns the next number.

        A few blocks are packed ahead of the one that `put` has.
        """
        ahead = 2 * WORKERS
        free: queue.SimpleQueue[bytearray | None] = queue.SimpleQueue()
        for buffer in self._tools.blocks(ahead + 1) if self._key else [None] * (ahead + 1):
            free.put(buffer)
        waiting: deque[tuple[Future[Packed], bytearray | None]] = deque()

        def put_next() -> None:
            future, buffer = waiting.popleft()
            put(future.result())
            free.put(buffer)

        for n in fresh:
            if len(waiting) == ahead:
                put_next()
            buffer = free.get()
            job = self._tools.pool.submit(self._pack, window, n, number, code, buffer)
            waiting.append((job, buffer))
            number += 1
        while waiting:
            put_next()
        return number

    def _pack(
        self, window: Window, n: int, number: int, code: int, buffer: bytearray | None
    ) -> Packed:
        found = self._find(n) if code & codec.XOR else None
        base = self._base_bytes(found)
        used, packed = codec.compress(code, window.plain(self._blocks[n]), self._items[n], base)
        xor: tuple[str, int] | None = None
        needs: tuple[str, ...] = ()
        if used & codec.XOR and found is not None:
            used = used & ~codec.XOR | found.depth << DEPTH_SHIFT
            xor, needs = (found.generation, found.number), found.needs
        if self._key is not None:
            assert buffer is not None
            length = self._key.encrypt_block(number, packed, memoryview(buffer))
            packed = memoryview(buffer)[:length]
        return Packed(n, number, used, packed, block_digest(packed), xor, needs)

    def _find(self, n: int) -> BaseBlock | None:
        return None if self._base is None else self._base.at(self._blocks[n])

    def _base_bytes_at(self, n: int) -> memoryview | None:
        return self._base_bytes(self._find(n))

    def _base_bytes(self, found: BaseBlock | None) -> memoryview | None:
        return None if found is None or self._base is None else self._base.read(found)
