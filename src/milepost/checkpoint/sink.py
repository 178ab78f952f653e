"""The end of the pipeline: one thread writes, another digests the same bytes."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from milepost.checkpoint.direct import IO_BYTES, DirectWriter
from milepost.checkpoint.image import Image
from milepost.checkpoint.layout import PAGE_BYTES


class Sink:
    """Appends to a file through two page-aligned buffers and digests what it writes.

    Pages that `append_pages` sends are not part of the digest: their blocks have digests of
    their own, which the tail holds.
    """

    def __init__(self, writer: DirectWriter) -> None:
        from blake3 import blake3

        self._writer, self._hasher = writer, blake3()
        self._write_thread = ThreadPoolExecutor(1, "milepost-write")
        self._hash_thread = ThreadPoolExecutor(1, "milepost-digest")
        self._buffers = (Image(IO_BYTES), Image(IO_BYTES))
        self._busy: list[list[Future[Any]]] = [[], []]
        self._which, self._fill, self._sent = 0, 0, 0
        self._all: list[Future[Any]] = []

    @property
    def offset(self) -> int:
        """Where the next appended byte goes."""
        return self._sent + self._fill

    def append(self, data: bytes | memoryview) -> None:
        """Copy `data` behind what was appended before."""
        view = memoryview(data)
        while view:
            part = view[: IO_BYTES - self._fill]
            self._buffers[self._which].view[self._fill : self._fill + len(part)] = part
            self._fill += len(part)
            view = view[len(part) :]
            if self._fill == IO_BYTES:
                self._flush()

    def append_pages(self, view: memoryview) -> None:
        """Write whole pages of memory, which must stay as it is until `finish`, without a copy."""
        self._flush()
        self._all.append(self._write_thread.submit(self._writer.write, view, self._sent))
        self._sent += len(view)

    def pad(self) -> None:
        """Fill with zeros up to the next page."""
        self.append(bytes(-self.offset % PAGE_BYTES))

    def drain(self) -> None:
        """Wait until everything is written; the memory of `append_pages` is free then."""
        self._flush()
        self._wait(self._all)

    def finish(self) -> str:
        """Wait for everything; the digest in hexadecimal. The end of the file must be on a page."""
        self._flush()
        self._wait(self._all)
        return str(self._hasher.hexdigest())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for thread in (self._write_thread, self._hash_thread):
            thread.shutdown(wait=True, cancel_futures=True)

    def _flush(self) -> None:
        if self._fill == 0:
            return
        size, self._fill = self._fill, 0
        self._busy[self._which] = self._send(self._buffers[self._which].view[:size])
        self._which = 1 - self._which
        self._wait(self._busy[self._which])

    def _send(self, view: memoryview) -> list[Future[Any]]:
        jobs: list[Future[Any]] = [
            self._write_thread.submit(self._writer.write, view, self._sent),
            self._hash_thread.submit(self._hash, view),
        ]
        self._sent += len(view)
        self._all = [job for job in self._all if not job.done() or job.exception()] + jobs
        return jobs

    def _hash(self, view: memoryview) -> None:
        for start in range(0, len(view), IO_BYTES):
            self._hasher.update(view[start : start + IO_BYTES])

    def _wait(self, jobs: list[Future[Any]]) -> None:
        for job in jobs:
            job.result()
