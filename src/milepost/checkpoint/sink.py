"""The end of the pipeline: threads write, another digests some of the same bytes.

Writes are 4 to 8 MiB, the first and the last excepted: what comes in smaller pieces is gathered in
a page-aligned buffer, what comes in larger ones is written from where it lies.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from milepost.checkpoint.direct import IO_BYTES, DirectWriter
from milepost.checkpoint.image import Image
from milepost.checkpoint.layout import PAGE_BYTES

LEAST_BYTES = 4 << 20
"""Smaller writes cost a direct disk a part of its rate."""
_BUFFERS = 3
_WRITERS = 2
"""So that the disk has the next piece when it is done with one."""
_STEP_BYTES = 256 << 20
"""So much is reserved at once, at least: a reservation waits for the writes under way."""
_TRIM = 64


def new_buffers() -> tuple[Image, ...]:
    """Memory of a `Sink`, which may be used again for the next file."""
    return tuple(Image(IO_BYTES) for _ in range(_BUFFERS))


class Sink:
    """Appends to a file through page-aligned buffers. `expected_bytes` is the most it will take.

    What is appended while `is_digesting` is part of the digest; blocks that have digests of their
    own need not be.
    """

    def __init__(
        self, writer: DirectWriter, buffers: tuple[Image, ...], expected_bytes: int
    ) -> None:
        from blake3 import blake3

        self.is_digesting = True
        self._writer, self._hasher, self._buffers = writer, blake3(), buffers
        self._write_threads = ThreadPoolExecutor(_WRITERS, "milepost-write")
        self._hash_thread = ThreadPoolExecutor(1, "milepost-digest")
        self._busy: list[list[Future[Any]]] = [[] for _ in buffers]
        self._which, self._fill, self._sent = 0, 0, 0
        self._marks: list[tuple[int, int]] = []
        self._all: list[Future[Any]] = []
        self._trim_at = _TRIM
        self._expected_bytes = expected_bytes
        self._step_bytes = max(expected_bytes // 4, _STEP_BYTES)

    @property
    def offset(self) -> int:
        """Where the next appended byte goes."""
        return self._sent + self._fill

    def append(self, data: bytes | memoryview) -> None:
        """Copy `data` behind what was appended before."""
        view = memoryview(data)
        while view:
            part = view[: IO_BYTES - self._fill]
            end = self._fill + len(part)
            self._buffers[self._which].view[self._fill : end] = part
            if self.is_digesting:
                self._marks.append((self._fill, end))
            self._fill = end
            view = view[len(part) :]
            if self._fill == IO_BYTES:
                self._flush()

    def append_pages(self, view: memoryview) -> None:
        """Write whole pages of memory, which must stay as it is until `drain` or `finish`.

        They are not part of the digest. Only what is too small for a write of its own is copied.
        """
        short = LEAST_BYTES - self._fill if 0 < self._fill < LEAST_BYTES else 0
        if len(view) - short < LEAST_BYTES:
            self._gather(view)
            return
        self._gather(view[:short])
        self._flush()
        for piece in _pieces(view[short:]):
            self._submit_write(piece)

    def pad(self) -> None:
        """Fill with zeros up to the next page."""
        self.append(bytes(-self.offset % PAGE_BYTES))

    def drain(self) -> None:
        """Wait until the memory of `append_pages` is free."""
        self._wait(self._all)

    def finish(self) -> str:
        """Wait for everything; the digest in hexadecimal. The end of the file must be on a page."""
        self._flush()
        self._wait(self._all)
        return str(self._hasher.hexdigest())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for threads in (self._write_threads, self._hash_thread):
            threads.shutdown(wait=True, cancel_futures=True)

    def _gather(self, view: memoryview) -> None:
        digesting, self.is_digesting = self.is_digesting, False
        self.append(view)
        self.is_digesting = digesting

    def _flush(self) -> None:
        if self._fill == 0:
            return
        view = self._buffers[self._which].view[: self._fill]
        jobs = [self._submit_write(view)]
        if self._marks:
            jobs.append(self._hash_thread.submit(self._hash, view, self._marks))
            self._all.append(jobs[-1])
        self._fill, self._marks = 0, []
        self._busy[self._which] = jobs
        self._which = (self._which + 1) % len(self._buffers)
        self._wait(self._busy[self._which])

    def _submit_write(self, view: memoryview) -> Future[Any]:
        end = self._sent + len(view)
        if end <= self._expected_bytes:
            step = min(self._step_bytes, self._expected_bytes - end)
            self._writer.reserve(end, step)
        job = self._write_threads.submit(self._writer.write, view, self._sent)
        self._sent = end
        self._all.append(job)
        if len(self._all) > self._trim_at:
            self._all = [one for one in self._all if not one.done() or one.exception()]
            self._trim_at = 2 * len(self._all) + _TRIM
        return job

    def _hash(self, view: memoryview, marks: list[tuple[int, int]]) -> None:
        for start, stop in marks:
            self._hasher.update(view[start:stop])

    def _wait(self, jobs: list[Future[Any]]) -> None:
        for job in jobs:
            job.result()


def _pieces(view: memoryview) -> Iterator[memoryview]:
    """Cut into pieces of at most IO_BYTES, all of about the same size, on pages."""
    count = -(-len(view) // IO_BYTES)
    pages = len(view) // PAGE_BYTES
    edges = [n * pages // count * PAGE_BYTES for n in range(count)] + [len(view)]
    for start, stop in itertools.pairwise(edges):
        yield view[start:stop]
