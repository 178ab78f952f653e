"""A copy of the state in bounded memory: in waves, through two buffers.

The application copies one wave while the wave before is being written, and goes on when the last
wave is copied. It waits longer than for one copy of everything, but the memory of the node does
not have to hold the state twice.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from milepost.checkpoint.image import Image
from milepost.checkpoint.layout import BLOCK_BYTES, PAGE_BYTES, ArrayPlace, Layout
from milepost.checkpoint.staging import Window

_LEAST_BYTES = 2 * BLOCK_BYTES


class Waves:
    """Two buffers of half of `limit_bytes` each, used again for every save."""

    is_recycled = True

    def __init__(self, limit_bytes: int) -> None:
        wave_bytes = max(limit_bytes // 2 // PAGE_BYTES * PAGE_BYTES, _LEAST_BYTES)
        self.capacity_bytes = 2 * wave_bytes
        self._wave_bytes = wave_bytes
        self._buffers = (Image(wave_bytes), Image(wave_bytes))
        self._free: queue.SimpleQueue[Image | None] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[tuple[Window, Image] | None] = queue.SimpleQueue()
        self.filled: float | None = None
        self.is_filled = threading.Event()

    def touch(self) -> None:
        """Let the kernel back every page now."""
        for buffer in self._buffers:
            buffer.touch()

    def begin(self) -> None:
        """Start anew; nobody may be filling or reading."""
        self._free, self._full, self.filled = queue.SimpleQueue(), queue.SimpleQueue(), None
        self.is_filled.clear()
        for buffer in self._buffers:
            self._free.put(buffer)

    def fill(self, layout: Layout, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """The application's side: copy wave after wave; returns early when the reader gave up."""
        try:
            for blocks in _waves(layout, self._wave_bytes):
                buffer = self._free.get()
                if buffer is None:
                    return
                start, stop = _span(layout, blocks)
                _copy(buffer.bytes[: stop - start], start, layout, arrays)
                self._full.put((Window(blocks, start, buffer.view), buffer))
        finally:
            self.filled = time.monotonic()
            self.is_filled.set()
            self._full.put(None)

    def windows(self, layout: Layout, is_patient: bool = False) -> Iterator[Window]:
        """The writer's side; a buffer is used again when the next window is asked for."""
        seen = 0
        while (item := self._full.get()) is not None:
            window, buffer = item
            seen += len(window.blocks)
            yield window
            self._free.put(buffer)
        if seen != len(layout.blocks):
            raise RuntimeError("the copy of the state ended early")

    def give_up(self) -> None:
        """The writer failed: let the application go on."""
        self._free.put(None)


def _waves(layout: Layout, wave_bytes: int) -> Iterator[range]:
    """Neighbouring blocks, as many as fit into a buffer."""
    start = 0
    for n in range(1, len(layout.blocks) + 1):
        is_end = n == len(layout.blocks)
        if (
            is_end
            or _span(layout, range(start, n + 1))[1] - layout.blocks[start].offset > wave_bytes
        ):
            yield range(start, n)
            start = n


def _span(layout: Layout, blocks: range) -> tuple[int, int]:
    """Bytes of the image, in whole pages."""
    last = layout.blocks[blocks[-1]]
    end = last.offset + last.size
    return layout.blocks[blocks[0]].offset, end + -end % PAGE_BYTES


def _copy(
    target: np.ndarray[Any, Any],
    start: int,
    layout: Layout,
    arrays: Mapping[str, np.ndarray[Any, Any]],
) -> None:
    """Fill `target`, which begins at `start` of the image; gaps between arrays are zeros."""
    end, stop = start, start + len(target)
    for place in layout.arrays:
        low, high = max(place.offset, start), min(place.offset + place.size_bytes, stop)
        if low >= high:
            continue
        target[end - start : low - start] = 0
        piece = _bytes_of(arrays[place.name], place, low - place.offset, high - place.offset)
        target[low - start : high - start] = piece
        end = high
    target[end - start :] = 0


def _bytes_of(
    array: np.ndarray[Any, Any], place: ArrayPlace, low: int, high: int
) -> np.ndarray[Any, Any]:
    """Bytes `low` to `high` of an array in C order; only that much is copied, if anything."""
    item = place.dtype.itemsize
    first, last = low // item, -(-high // item)
    if array.flags.c_contiguous:
        plain = array.reshape(-1)[first:last]
    else:
        plain = np.ascontiguousarray(array.flat[first:last])
    return plain.view(np.uint8)[low - first * item : high - first * item]
