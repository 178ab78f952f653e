"""The image: page-aligned memory that is touched once and used again for every checkpoint.

Copying into memory the kernel has already backed runs at the speed of memory; into fresh memory
it runs at the speed of page faults, ten times slower and more.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import Any

import numpy as np

from milepost.checkpoint.layout import PAGE_BYTES, ArrayPlace, Layout


class Image:
    """Anonymous page-aligned memory that holds arrays at the places of a layout."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = max(-(-capacity_bytes // PAGE_BYTES), 1) * PAGE_BYTES
        self._memory = mmap.mmap(-1, self.capacity_bytes)
        self.bytes = np.frombuffer(self._memory, dtype=np.uint8)

    @property
    def view(self) -> memoryview:
        return memoryview(self._memory)

    def touch(self) -> None:
        """Let the kernel back every page now, not while the application waits."""
        self.bytes[::PAGE_BYTES] = 0

    def fill(self, layout: Layout, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Copy `arrays` to their places; the gaps between them are zeros."""
        end = 0
        for place in layout.arrays:
            self.bytes[end : place.offset] = 0
            np.copyto(self.array(place), arrays[place.name], casting="no")
            end = place.offset + place.size_bytes
        self.bytes[end : layout.image_bytes] = 0

    def array(self, place: ArrayPlace) -> np.ndarray[Any, Any]:
        """The array at `place`, as a view of this memory."""
        return np.ndarray(place.shape, place.dtype, buffer=self._memory, offset=place.offset)


def reuse(image: Image | None, needed_bytes: int) -> Image:
    """`image` if it is large enough, else a new one with a quarter more room than needed."""
    if image is not None and image.capacity_bytes >= needed_bytes:
        return image
    return Image(needed_bytes if image is None else needed_bytes + needed_bytes // 4)
