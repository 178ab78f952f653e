"""A tier behind any URL that fsspec speaks: s3://, gs://, abfs://, sftp://, memory:// and more."""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from milepost.durable import new_hasher, storage_errors
from milepost.errors import ConfigError
from milepost.tiers.base import CHUNK_BYTES, Progress, check_name, conflict


class FsspecTier:
    """Objects below a URL. See `Tier`.

    An object store shows an object when its upload is complete. Most of them cannot refuse to
    replace, so the content is compared first; the lease keeps a second writer away.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        self.place = _without_secrets(url)
        try:
            self._fs, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"no storage for {self.place} ({error})",
                where="tiers",
                fix="install the fsspec package of that protocol, for s3:// `pip install milepost[s3]`",
            ) from error
        self._root = root.rstrip("/")

    def put_file(self, local: Path, name: str, *, progress: Progress | None = None) -> None:
        path = self._path(name)
        with storage_errors(f"{self.place}/{name}"):
            size = self.stat(name)
            if size is not None:
                self._check_same(name, size, local)
                return
            self._fs.makedirs(posixpath.dirname(path), exist_ok=True)
            with local.open("rb", buffering=0) as source, self._new(path) as stream:
                while block := source.read(CHUNK_BYTES):
                    stream.write(block)
                    if progress is not None:
                        progress(len(block))

    def get_file(self, name: str, local: Path) -> None:
        with self._fs.open(self._path(name), "rb") as source, storage_errors(local):
            local.parent.mkdir(parents=True, exist_ok=True)
            with local.open("xb") as stream:
                while block := source.read(CHUNK_BYTES):
                    stream.write(block)
                stream.flush()
                os.fsync(stream.fileno())

    def list(self, prefix: str = "") -> list[str]:
        start = self._path(prefix) if prefix else self._root
        self._fs.invalidate_cache()
        try:
            found = self._fs.find(start)
        except FileNotFoundError:
            return []
        names = [posixpath.relpath(path, self._root or "/") for path in found if path != start]
        return sorted(names)

    def stat(self, name: str) -> int | None:
        self._fs.invalidate_cache()
        try:
            info = self._fs.info(self._path(name))
        except FileNotFoundError:
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def digest(self, name: str, algorithm: str = "blake3") -> str:
        hasher = new_hasher(algorithm)
        with self._fs.open(self._path(name), "rb") as stream:
            while block := stream.read(CHUNK_BYTES):
                hasher.update(block)
        return f"{algorithm}:{hasher.hexdigest()}"

    def read_bytes(self, name: str) -> bytes:
        return bytes(self._fs.cat_file(self._path(name)))

    def put_bytes(self, name: str, data: bytes) -> None:
        path = self._path(name)
        if self.stat(name) is not None:
            if self.read_bytes(name) != data:
                raise conflict(self.place, name)
            return
        with storage_errors(f"{self.place}/{name}"):
            self._fs.makedirs(posixpath.dirname(path), exist_ok=True)
            self._fs.pipe_file(path, data)

    def delete(self, prefix: str) -> None:
        try:
            self._fs.rm(self._path(prefix), recursive=True)
        except FileNotFoundError:
            return
        self._fs.invalidate_cache()

    def free_bytes(self) -> int | None:
        return None

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}"

    @contextlib.contextmanager
    def _new(self, path: str) -> Iterator[Any]:
        """An object that appears on a clean exit; after an exception it is discarded."""
        stream = self._fs.open(path, "wb", autocommit=False)
        try:
            yield stream
            stream.close()
        except BaseException:
            stream.discard()
            # Some file systems show a file while it is written; nobody had that name before.
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(path)
            raise
        stream.commit()

    def _check_same(self, name: str, size: int, local: Path) -> None:
        hasher: Any = new_hasher()
        if size == local.stat().st_size:
            with local.open("rb", buffering=0) as stream:
                while block := stream.read(CHUNK_BYTES):
                    hasher.update(block)
            if self.digest(name) == f"blake3:{hasher.hexdigest()}":
                return
        raise conflict(self.place, name)


def _without_secrets(url: str) -> str:
    """The URL without user, password and query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
