"""A tier behind any URL that fsspec speaks: s3://, gs://, abfs://, sftp://, memory:// and more."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from milepost.durable import new_hasher, storage_errors
from milepost.errors import ConfigError, MilepostError, StorageError
from milepost.tiers.base import CHUNK_BYTES, Progress, check_name, conflict
from milepost.tiers.s3 import S3, abort_uploads, part_bytes, replace_head, without_retries

_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Protocols of object stores: no folders, and an object shows only when it is complete."""


class FsspecTier:
    """Objects below a URL. See `Tier`.

    An object store shows an object when its upload is complete. Most of them cannot refuse to
    replace, so the content is compared first; the lease keeps a second writer away. A bucket is
    never made here: one that is missing is a StorageError.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        self.place = _without_secrets(url)
        self._protocol = urlsplit(url).scheme.lower()
        try:
            self._fs, root = fsspec.core.url_to_fs(url, **without_retries(self._protocol))
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"no storage for {self.place} ({error})",
                where="tiers",
                fix="install the fsspec package of that protocol, for s3:// `pip install milepost[s3]`",
            ) from error
        self._root = root.rstrip("/")
        self.piece_bytes = part_bytes(self._protocol, 0) or 0
        """What is sent at once, for whoever limits the rate."""
        if self._protocol in S3:
            self._fs.retries = 1  # `RetryTier` counts and spaces them

    def put_file(self, local: Path, name: str, *, progress: Progress | None = None) -> None:
        path = self._path(name)
        size = self.stat(name)
        if size is not None:
            self._check_same(name, size, local)
            return
        with self._sending(name), local.open("rb", buffering=0) as source:
            self._make_folder(path)
            with self._new(path, local.stat().st_size) as stream:
                while block := source.read(CHUNK_BYTES):
                    stream.write(block)
                    if progress is not None:
                        progress(len(block))

    def get_file(self, name: str, local: Path) -> None:
        with self._errors(), self._fs.open(self._path(name), "rb") as source, storage_errors(local):
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
            with self._errors():
                found = self._fs.find(start)
        except FileNotFoundError:
            return []
        names = [posixpath.relpath(path, self._root or "/") for path in found if path != start]
        return sorted(names)

    def stat(self, name: str) -> int | None:
        self._fs.invalidate_cache()
        try:
            with self._errors():
                info = self._fs.info(self._path(name))
        except FileNotFoundError:
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def digest(self, name: str, algorithm: str = "blake3") -> str:
        hasher = new_hasher(algorithm)
        with self._errors(), self._fs.open(self._path(name), "rb") as stream:
            while block := stream.read(CHUNK_BYTES):
                hasher.update(block)
        return f"{algorithm}:{hasher.hexdigest()}"

    def read_bytes(self, name: str, limit: int | None = None) -> bytes:
        with self._errors():
            return bytes(self._fs.cat_file(self._path(name), start=None, end=limit))

    def put_bytes(self, name: str, data: bytes) -> None:
        path = self._path(name)
        if self.stat(name) is not None:
            if self.read_bytes(name) != data:
                raise conflict(self.place, name)
            return
        with self._sending(name):
            self._make_folder(path)
            self._fs.pipe_file(path, data)

    def replace_head(self, name: str, head: bytes) -> None:
        path, size = self._path(name), self.stat(name)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        with self._sending(name):
            if self._protocol in S3:
                replace_head(self._fs, path, head, size)
            elif self._protocol in _BUCKETS:
                whole = self._fs.cat_file(path)
                self._fs.pipe_file(path, head + whole[len(head) :])
            else:
                with self._fs.open(path, "r+b") as stream:
                    stream.write(head)

    def delete(self, prefix: str) -> None:
        path = self._path(prefix)
        self._fs.invalidate_cache()
        try:
            with self._errors():
                self._fs.rm(path, recursive=True)
        except FileNotFoundError:
            return
        self._fs.invalidate_cache()

    def clean(self, prefix: str = "") -> tuple[str, ...]:
        start = self._path(prefix) if prefix else self._root
        with self._errors():
            paths = abort_uploads(self._fs, start)
        return tuple(posixpath.relpath(path, self._root or "/") for path in paths)

    def free_bytes(self) -> int | None:
        return None

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}"

    def _make_folder(self, path: str) -> None:
        if self._protocol not in _BUCKETS:
            self._fs.makedirs(posixpath.dirname(path), exist_ok=True)

    @contextlib.contextmanager
    def _sending(self, name: str) -> Iterator[None]:
        """Errors while something is written under `name`."""
        try:
            with storage_errors(f"{self.place}/{name}"), self._errors():
                yield
        except FileNotFoundError as error:
            raise StorageError(
                f"cannot be written there ({error})",
                where=f"{self.place}/{name}",
                fix="make that bucket, or name another place in `tiers`",
            ) from error

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """What the storage's own library raises becomes an OSError: it may pass."""
        try:
            yield
        except (OSError, MilepostError):
            raise
        except Exception as error:
            if type(error).__module__.partition(".")[0] in ("builtins", "milepost"):
                raise
            if "Credentials" in type(error).__name__:
                raise StorageError(
                    f"asks for credentials ({error})",
                    where=self.place,
                    fix="give them as that storage's tools take them, such as AWS_PROFILE",
                ) from error
            raise OSError(f"{type(error).__name__}: {error}") from error

    @contextlib.contextmanager
    def _new(self, path: str, size_bytes: int) -> Iterator[Any]:
        """An object that appears on a clean exit; after an exception it is discarded."""
        stream = self._fs.open(
            path, "wb", autocommit=False, block_size=part_bytes(self._protocol, size_bytes)
        )
        try:
            yield stream
            stream.close()
        except BaseException:
            stream.discard()
            with contextlib.suppress(AttributeError):
                stream.closed = True  # else it sends what it holds when it is collected
            if self._protocol not in _BUCKETS:
                # Shown while it is written; nobody had that name before.
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
