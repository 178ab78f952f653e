"""The only durable write: temporary file, fsync, rename, fsync of the directory.

A name that exists is complete. Nothing here overwrites in place, and `publish` never replaces.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from milepost.errors import DataError, StorageError
from milepost.model import FileProof

_FULL = {errno.ENOSPC: "is full", errno.EDQUOT: "is over quota", errno.EROFS: "is read-only"}
_READ_BLOCK_BYTES = 4 << 20
_UMASK = os.umask(0o022)
os.umask(_UMASK)  # can only be read by setting it, so it is read once, before there are threads


@contextlib.contextmanager
def storage_errors(path: Path | str) -> Iterator[None]:
    """Turn a full, read-only or forbidden place into a StorageError that names it."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(
                f"the file system {_FULL[error.errno]}; what was written before is intact",
                where=path,
                fix="free space there or name another place in `tiers`, then run the same command again",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise StorageError(
                "may not be written", where=path, fix="mend its owner and mode, then run again"
            ) from error
        raise


def fsync_directory(folder: Path | str) -> None:
    """Make the names in `folder` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_file(path: Path | str) -> None:
    """Make the bytes of an existing file durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def atomic_file(path: Path | str, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary neighbour of `path`; on a clean exit it becomes `path`, durably.

    After an exception, or a crash at any point, `path` is what it was before. Missing parent
    folders are made. Text is UTF-8 with plain newlines.
    """
    path = Path(path)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "b" not in mode
        fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(
                fd, mode, encoding="utf-8" if text else None, newline="" if text else None
            ) as stream:
                yield stream
                stream.flush()
                os.fchmod(stream.fileno(), 0o666 & ~_UMASK)
                os.fsync(stream.fileno())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise
        fsync_directory(path.parent)


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` durably as indented JSON with a final newline; NaN is refused."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_file(path) as stream:
        stream.write(text + "\n")


def read_json(path: Path | str) -> Any:
    """Read JSON; damage is a DataError that names the file and the line."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"is not JSON ({error})", where=path) from error


def create_exclusive(path: Path | str, text: str) -> bool:
    """Create `path` with `text` if nothing has that name; False when somebody was first.

    The file appears complete or not at all: it is written under another name and linked.
    """
    path = Path(path)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            try:
                os.link(name, path)
            except FileExistsError:
                return False
        finally:
            os.unlink(name)
        fsync_directory(path.parent)
    return True


def publish_directory(source: Path, target: Path) -> bool:
    """Rename the folder `source` to `target` unless `target` exists; True when it was moved.

    A rename onto a folder that holds something fails in the kernel, so two publishers cannot
    both win. Across file systems the copy is completed under another name first.
    """
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(source, target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                return False
            if error.errno != errno.EXDEV:
                raise
            near = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            try:
                _copy_durably(source, near)
                if not publish_directory(near, target):
                    shutil.rmtree(near)
                    return False
            except BaseException:
                shutil.rmtree(near, ignore_errors=True)
                raise
            shutil.rmtree(source)
    return True


def _copy_durably(source: Path, target: Path) -> None:
    """Copy what is in a folder into another; unlike copytree, the first error keeps its errno."""
    for entry in sorted(source.iterdir()):
        copy = target / entry.name
        if entry.is_dir():
            copy.mkdir()
            _copy_durably(entry, copy)
        else:
            shutil.copy2(entry, copy)
            fsync_file(copy)
    shutil.copystat(source, target)
    fsync_directory(target)


def digest_file(path: Path | str, algorithm: str = "blake3") -> str:
    """Digest a file as `algorithm:hex`; `blake3` or any name that hashlib knows."""
    hasher = new_hasher(algorithm)
    with Path(path).open("rb", buffering=0) as stream:
        while block := stream.read(_READ_BLOCK_BYTES):
            hasher.update(block)
    return f"{algorithm}:{hasher.hexdigest()}"


def new_hasher(algorithm: str = "blake3") -> Any:
    """A hash object with update() and hexdigest(); unknown algorithms are a DataError."""
    if algorithm == "blake3":
        from blake3 import blake3

        return blake3()
    try:
        return hashlib.new(algorithm)
    except ValueError as error:
        raise DataError(
            f"unknown digest algorithm {algorithm!r}", fix="use blake3 or sha256"
        ) from error


def prove_file(path: Path, name: str | None = None, algorithm: str = "blake3") -> FileProof:
    """Size and digest of a file, recorded under `name` (its own path by default)."""
    return FileProof(name or str(path), path.stat().st_size, digest_file(path, algorithm))


def file_matches(path: Path, proof: FileProof) -> bool:
    """Is `path` there with the size and digest of `proof`? The size is asked first."""
    try:
        if path.stat().st_size != proof.size_bytes:
            return False
        return digest_file(path, proof.digest.partition(":")[0]) == proof.digest
    except FileNotFoundError:
        return False


def inside(folder: Path, name: str) -> Path:
    """Join `name` to `folder`; a name that is absolute or leaves the folder is a DataError."""
    joined = Path(os.path.normpath(folder / name))
    if os.path.isabs(name) or not joined.is_relative_to(os.path.normpath(folder)):
        raise DataError(
            f"path {name!r} leaves its folder", where=folder, fix="use a path below the folder"
        )
    return joined
