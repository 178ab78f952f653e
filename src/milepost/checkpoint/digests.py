"""The digests of the blocks of a state, by many threads, while it is still being copied."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from milepost.checkpoint.blocks import block_digest
from milepost.checkpoint.density import digest_pieces, is_sampled
from milepost.checkpoint.layout import BLOCK_BYTES, Layout
from milepost.checkpoint.staging import Staging, Window

GROUP_BYTES = 8 * BLOCK_BYTES
_AHEAD_BYTES = 32 * BLOCK_BYTES
_LOOK_S = 0.002


class Digester:
    """Digests groups of neighbouring blocks, `group` blocks each.

    While the application waits for its copy, it does just enough to keep the disk busy: digests
    take a core from the copy, and memory bandwidth. `written_bytes` says how far the disk is.
    `fine` gets the digests of the pieces of some blocks when `is_measured`; see `density`.
    """

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        staging: Staging,
        layout: Layout,
        written_bytes: Callable[[], int],
        is_measured: bool,
    ) -> None:
        self._pool, self._staging, self._layout = pool, staging, layout
        self._written_bytes, self._is_measured = written_bytes, is_measured
        self._beside_copy = threading.Semaphore(max((os.cpu_count() or 1) - 1, 1))
        self.group = max(GROUP_BYTES // layout.block_bytes, 1)
        self.fine: dict[int, tuple[bytes, ...]] = {}

    def starts(self, blocks: range) -> range:
        """The first block of each group."""
        return range(blocks.start, blocks.stop, self.group)

    def begin(self, window: Window) -> list[Future[list[bytes]]]:
        """A future for each group of the window."""
        stop = window.blocks.stop
        return [
            self._pool.submit(self._digest_group, window, start, min(start + self.group, stop))
            for start in self.starts(window.blocks)
        ]

    def _digest_group(self, window: Window, start: int, stop: int) -> list[bytes]:
        done = self._staging.is_filled
        if done.is_set() or self._staging.is_recycled:
            return self._digest(window, start, stop)
        offset = self._layout.blocks[start].offset
        with self._beside_copy:
            while offset > self._written_bytes() + _AHEAD_BYTES and not done.wait(_LOOK_S):
                pass
            return self._digest(window, start, stop)

    def _digest(self, window: Window, start: int, stop: int) -> list[bytes]:
        plain = [window.plain(block) for block in self._layout.blocks[start:stop]]
        if self._is_measured:
            for n, data in enumerate(plain, start):
                if is_sampled(n, self._layout):
                    self.fine[n] = digest_pieces(data)
        return [block_digest(data) for data in plain]


def joined(groups: Sequence[Future[list[bytes]]]) -> bytes:
    """All digests of a window, back to back."""
    return b"".join(digest for group in groups for digest in group.result())
