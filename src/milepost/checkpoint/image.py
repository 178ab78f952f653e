"""The image: page-aligned memory that is touched once and used again for every checkpoint.

Copying into memory the kernel has already backed runs at the speed of memory; into fresh memory
it runs at the speed of page faults, ten times slower and more. Large pages make the faults few.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from milepost.checkpoint.layout import PAGE_BYTES, ArrayPlace, Layout

_LEAST_TOLD_BYTES = 256 << 20
_HUGE_BYTES = 2 << 20
_HUGEPAGE, _WIPEONFORK = 14, 18
"""MADV_… of Linux, which Python does not name everywhere."""


class Image:
    """Anonymous page-aligned memory that holds arrays at the places of a layout.

    A forked child gets a copy when `is_inherited`, else zeros: then the parent, which goes on to
    write, need not give the child the old pages.
    """

    def __init__(self, capacity_bytes: int, *, is_inherited: bool = False) -> None:
        self.capacity_bytes = max(-(-capacity_bytes // PAGE_BYTES), 1) * PAGE_BYTES
        # Private: a process that forks must not share restored arrays with its children.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, self.capacity_bytes, flags=flags)
        if self.capacity_bytes >= _HUGE_BYTES:
            self._advise(_HUGEPAGE)
        if not is_inherited:
            self._advise(_WIPEONFORK)
        self.bytes = np.frombuffer(self._memory, dtype=np.uint8)

    def _advise(self, advice: int) -> None:
        with contextlib.suppress(OSError):  # a kernel without: slower, but not wrong
            self._memory.madvise(advice)

    @property
    def view(self) -> memoryview:
        return memoryview(self._memory)

    def touch(self) -> None:
        """Let the kernel back every page now, not while the application waits."""
        self.bytes[::PAGE_BYTES] = 0

    def fill(
        self,
        layout: Layout,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        tell: Callable[[int], None] = lambda end: None,
    ) -> None:
        """Copy `arrays` to their places; the gaps between them are zeros.

        `tell` hears now and then up to where the image is complete.
        """
        marks = _marks(layout.image_bytes)
        end = 0
        for place in layout.arrays:
            self.bytes[end : place.offset] = 0
            for end in self._copy(arrays[place.name], place, marks):
                if marks and end >= marks[0]:
                    tell(end)
                    marks = [mark for mark in marks if mark > end]
        self.bytes[end : layout.image_bytes] = 0
        tell(layout.image_bytes)

    def _copy(
        self, array: np.ndarray[Any, Any], place: ArrayPlace, marks: Sequence[int]
    ) -> Iterator[int]:
        """Copy one array, one that lies in one piece up to each mark; yields the ends."""
        start, stop = place.offset, place.offset + place.size_bytes
        inside = [mark for mark in marks if start < mark < stop]
        if not inside or not array.flags.c_contiguous:
            np.copyto(self.array(place), array, casting="no")
            yield stop
            return
        source = array.reshape(-1).view(np.uint8)
        for end in (*inside, stop):
            self.bytes[start:end] = source[start - place.offset : end - place.offset]
            yield end
            start = end

    def array(self, place: ArrayPlace) -> np.ndarray[Any, Any]:
        """The array at `place`, as a view of this memory."""
        return np.ndarray(place.shape, place.dtype, buffer=self._memory, offset=place.offset)


def _marks(image_bytes: int) -> list[int]:
    """Where the copy of a large image tells how far it is: at three quarters, and once more.

    Not before, since whoever begins then takes memory bandwidth from the rest of the copy; and a
    small one is copied in no time.
    """
    if image_bytes < _LEAST_TOLD_BYTES:
        return []
    pages = image_bytes // PAGE_BYTES
    return [pages * eighths // 8 * PAGE_BYTES for eighths in (6, 7)]


def reuse(image: Image | None, needed_bytes: int) -> Image:
    """`image` if it is large enough, else a new one with a quarter more room than needed."""
    if image is not None and image.capacity_bytes >= needed_bytes:
        return image
    return Image(needed_bytes if image is None else needed_bytes + needed_bytes // 4)
