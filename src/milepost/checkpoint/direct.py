"""Reading and writing files past the page cache (O_DIRECT), or through it where that is refused.

Direct writing costs a twentieth of the processor time of buffered writing and leaves the page
cache to the application. Memory and offsets are whole pages; see `Image`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from milepost.checkpoint.layout import PAGE_BYTES
from milepost.durable import storage_errors
from milepost.errors import DataError

IO_BYTES = 8 << 20
_NOT_OFFERED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
_DIRECT = getattr(os, "O_DIRECT", 0)


class DirectWriter:
    """Write a new file from page-aligned memory; closing it makes the bytes durable.

    `expected_bytes` are reserved at once, so that a full disk shows before the first write.
    Errors: a full or forbidden place is a StorageError; an existing file a FileExistsError.
    """

    def __init__(self, path: Path, expected_bytes: int = 0) -> None:
        self.path = path
        self.size_bytes = 0
        self.busy_s = 0.0
        """Seconds in which the disk was waited for: what it could do, whatever else was slow."""
        self._reserved_bytes = 0
        self._lock, self._writing, self._since = threading.Lock(), 0, 0.0
        with storage_errors(path):
            self._fd, self.is_direct = _open_new(path)
            try:
                self._reserve(expected_bytes)
            except OSError:
                os.close(self._fd)
                raise

    def reserve(self, end: int, step_bytes: int) -> None:
        """Reserve the file up to `end`, and `step_bytes` more where the disk has them."""
        if end <= self._reserved_bytes:
            return
        with storage_errors(self.path):
            try:
                self._reserve(end + step_bytes)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._reserve(end)

    def write(self, view: memoryview, offset: int) -> None:
        """Write whole pages at `offset`; several threads may write different places."""
        with self._busy(), storage_errors(self.path):
            done = 0
            while done < len(view):
                done += self._write_some(view[done : done + IO_BYTES], offset + done)
        with self._lock:
            self.size_bytes = max(self.size_bytes, offset + len(view))

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        """Count the time in which at least one thread waits for the disk."""
        with self._lock:
            self._since = self._since if self._writing else time.perf_counter()
            self._writing += 1
        try:
            yield
        finally:
            with self._lock:
                self._writing -= 1
                if not self._writing:
                    self.busy_s += time.perf_counter() - self._since

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                with self._busy(), storage_errors(self.path):
                    os.ftruncate(self._fd, self.size_bytes)
                    os.fsync(self._fd)
        finally:
            os.close(self._fd)

    def _write_some(self, view: memoryview, offset: int) -> int:
        try:
            written = os.pwrite(self._fd, view, offset)
        except OSError as error:
            if not self.is_direct or error.errno not in _NOT_OFFERED:
                raise
            self._go_buffered()
            return 0
        if written % PAGE_BYTES:
            self._go_buffered()
        return written

    def _go_buffered(self) -> None:
        fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(fd, self._fd, inheritable=False)
        os.close(fd)
        self.is_direct = False

    def _reserve(self, end: int) -> None:
        start = self._reserved_bytes
        if end <= start:
            return
        try:
            os.posix_fallocate(self._fd, start, end - start)
        except OSError as error:
            if error.errno not in _NOT_OFFERED:
                raise
        self._reserved_bytes = end


class DirectReader:
    """Read a file into page-aligned memory, directly where that is offered."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd, self._is_direct = _open_old(path)
        self.size_bytes = os.fstat(self._fd).st_size

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` from `offset`; a file that ends before is a DataError."""
        done = 0
        while done < len(view):
            count = self._read_some(view[done : done + IO_BYTES], offset + done)
            if count == 0:
                raise DataError(
                    f"ends at byte {offset + done}, but {offset + len(view)} are needed",
                    where=self.path,
                )
            done += count

    def read(self, offset: int, size: int) -> bytes:
        """Read `size` bytes through the page cache, at any place."""
        parts = bytearray()
        with self.path.open("rb", buffering=0) as stream:
            stream.seek(offset)
            while len(parts) < size:
                part = stream.read(size - len(parts))
                if not part:
                    raise DataError(f"ends at byte {offset + len(parts)}", where=self.path)
                parts += part
        return bytes(parts)

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_some(self, view: memoryview, offset: int) -> int:
        if self._is_direct and (len(view) % PAGE_BYTES or offset % PAGE_BYTES):
            return self._read_buffered(view, offset)
        try:
            return os.preadv(self._fd, [view], offset)
        except OSError as error:
            if not self._is_direct or error.errno not in _NOT_OFFERED:
                raise
            return self._read_buffered(view, offset)

    def _read_buffered(self, view: memoryview, offset: int) -> int:
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.preadv(fd, [view], offset)
        finally:
            os.close(fd)


def _open_new(path: Path) -> tuple[int, bool]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags | _DIRECT, 0o666), bool(_DIRECT)
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise
    # The kernel may have made the file before it refused O_DIRECT.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, flags, 0o666), False


def _open_old(path: Path) -> tuple[int, bool]:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags | _DIRECT), bool(_DIRECT)
    except OSError as error:
        if error.errno in _NOT_OFFERED:
            return os.open(path, flags), False
        if error.errno == errno.ELOOP:
            raise DataError("is a link, which a checkpoint never holds", where=path) from error
        raise
