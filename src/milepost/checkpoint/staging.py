"""What stands between the application's copy and the writer: the state as windows of blocks.

The writer begins with the first blocks while the application still copies the last ones.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from milepost.checkpoint.image import Image
from milepost.checkpoint.layout import Block, Layout

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class Window:
    """Some blocks of the image in memory: `view` begins at `offset` of the image."""

    blocks: range
    offset: int
    view: memoryview

    def plain(self, block: Block) -> memoryview:
        """The bytes of one of the blocks."""
        start = block.offset - self.offset
        return self.view[start : start + block.size]


class Staging(Protocol):
    """`fill` is the application's side, `windows` the writer's; `begin` comes before both.

    `is_recycled`: the memory of a window is used again when the next one is asked for.
    `filled` is when the copy was complete (time.monotonic), None before; `is_filled` can be
    waited for.
    """

    is_recycled: bool
    filled: float | None
    is_filled: threading.Event

    def begin(self) -> None: ...
    def fill(self, layout: Layout, arrays: Arrays) -> None: ...
    def windows(self, layout: Layout, is_patient: bool = False) -> Iterator[Window]: ...
    def give_up(self) -> None: ...


class Whole:
    """Memory for the whole state: `fill` never waits for the writer."""

    is_recycled = False

    def __init__(self, image: Image) -> None:
        self.image = image
        self.is_filled = threading.Event()
        self.filled: float | None = None
        self._ends: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    @classmethod
    def of_filled(cls, image: Image, layout: Layout) -> Whole:
        """An image that is complete already."""
        whole = cls(image)
        whole.filled = time.monotonic()
        whole.is_filled.set()
        for end in (layout.image_bytes, None):
            whole._ends.put(end)
        return whole

    def begin(self) -> None:
        """Start anew; nobody may be filling or reading."""
        self.filled, self._ends = None, queue.SimpleQueue()
        self.is_filled.clear()

    def fill(self, layout: Layout, arrays: Arrays) -> None:
        """Copy everything, and tell the writer how far it is."""
        try:
            self.image.fill(layout, arrays, self._ends.put)
        finally:
            self.filled = time.monotonic()
            self.is_filled.set()
            self._ends.put(None)

    def windows(self, layout: Layout, is_patient: bool = False) -> Iterator[Window]:
        """The blocks that are complete, as they come; all at once when `is_patient`."""
        start, blocks = 0, layout.blocks
        while (end := self._ends.get()) is not None:
            stop = start
            while stop < len(blocks) and blocks[stop].offset + blocks[stop].size <= end:
                stop += 1
            if stop > start and (not is_patient or stop == len(blocks)):
                yield Window(range(start, stop), 0, self.image.view)
                start = stop
        if start != len(blocks):
            raise RuntimeError("the copy of the state ended early")

    def give_up(self) -> None:
        """The writer failed: the application waits for nothing."""
