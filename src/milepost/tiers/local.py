"""A tier in a folder: a node's disk or a shared file system."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from milepost.durable import digest_file, fsync_directory, inside, storage_errors
from milepost.tiers.base import CHUNK_BYTES, Progress, check_name, conflict

_TEMPORARY = ".put-"


class LocalTier:
    """Files below `folder`, which is made with the first file. See `Tier`.

    A name appears by linking a complete, durable file, so two writers cannot replace each other.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.place = str(folder)

    def put_file(self, local: Path, name: str, *, progress: Progress | None = None) -> None:
        target = self._path(name)
        with storage_errors(target):
            if self._is_same(target, local):
                return
            with local.open("rb", buffering=0) as source, self._new(target) as stream:
                while block := source.read(CHUNK_BYTES):
                    stream.write(block)
                    if progress is not None:
                        progress(len(block))

    def get_file(self, name: str, local: Path) -> None:
        with self._path(name).open("rb") as source, storage_errors(local):
            local.parent.mkdir(parents=True, exist_ok=True)
            with local.open("xb") as stream:
                shutil.copyfileobj(source, stream, CHUNK_BYTES)
                stream.flush()
                os.fsync(stream.fileno())

    def list(self, prefix: str = "") -> list[str]:
        start = self._path(prefix) if prefix else self.folder
        return sorted(
            (Path(root) / name).relative_to(self.folder).as_posix()
            for root, _, names in os.walk(start)
            for name in names
            if not name.startswith(_TEMPORARY)
        )

    def stat(self, name: str) -> int | None:
        try:
            path = self._path(name)
            return path.stat().st_size if path.is_file() else None
        except (FileNotFoundError, NotADirectoryError):
            return None

    def digest(self, name: str, algorithm: str = "blake3") -> str:
        return digest_file(self._path(name), algorithm)

    def read_bytes(self, name: str, limit: int | None = None) -> bytes:
        with self._path(name).open("rb") as stream:
            return stream.read(-1 if limit is None else limit)

    def put_bytes(self, name: str, data: bytes) -> None:
        target = self._path(name)
        with storage_errors(target):
            if target.exists():
                if target.read_bytes() != data:
                    raise conflict(self.place, name)
                return
            with self._new(target) as stream:
                stream.write(data)

    def replace_head(self, name: str, head: bytes) -> None:
        path = self._path(name)
        with storage_errors(path), path.open("r+b") as stream:
            stream.write(head)
            stream.flush()
            os.fsync(stream.fileno())

    def delete(self, prefix: str) -> None:
        path = self._path(prefix)
        with storage_errors(path):
            try:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            except FileNotFoundError:
                return
            fsync_directory(path.parent)

    def clean(self, prefix: str = "") -> tuple[str, ...]:
        start = self._path(prefix) if prefix else self.folder
        found = sorted(
            Path(root) / name
            for root, _, names in os.walk(start)
            for name in names
            if name.startswith(_TEMPORARY)
        )
        for path in found:
            path.unlink(missing_ok=True)
        return tuple(path.relative_to(self.folder).as_posix() for path in found)

    def free_bytes(self) -> int | None:
        folder = self.folder.absolute()
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def _path(self, name: str) -> Path:
        return inside(self.folder, check_name(name))

    def _is_same(self, target: Path, local: Path) -> bool:
        """Is the content there already? Another content is a DataError."""
        if not target.exists():
            return False
        if target.stat().st_size == local.stat().st_size and digest_file(target) == digest_file(
            local
        ):
            return True
        raise conflict(self.place, str(target.relative_to(self.folder)))

    @contextlib.contextmanager
    def _new(self, target: Path) -> Iterator[IO[bytes]]:
        """A temporary file that is made durable and linked to `target` on a clean exit."""
        target.parent.mkdir(parents=True, exist_ok=True)
        fd, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=target.parent)
        try:
            with os.fdopen(fd, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, 0o644)
            try:
                os.link(temporary, target)
            except FileExistsError:
                self._is_same(target, Path(temporary))
        finally:
            os.unlink(temporary)
        fsync_directory(target.parent)
