"""How a file that an application wrote comes into a generation: shared with it, or copied.

link      a second name of the same file: nothing is written, and what the application writes
          into it later would change the generation too
reflink   a file of its own that shares the blocks until one of both is written to
          (btrfs, XFS, and others that know FICLONE)
copy      a file of its own
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from milepost.durable import new_hasher, prove_file
from milepost.errors import ConfigError
from milepost.model import FileProof

LINK, REFLINK, COPY = "link", "reflink", "copy"
AUTO = "auto"
WAYS = (AUTO, LINK, REFLINK, COPY)
_FICLONE = 0x40049409
_NOT_OFFERED = (
    errno.EOPNOTSUPP,
    errno.ENOTTY,
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EPERM,
    errno.EMLINK,
)
_READ_BYTES = 4 << 20


def check_way(way: str) -> str:
    """Return `way` if there is such a one, else a ConfigError."""
    if way not in WAYS:
        raise ConfigError(f"capture is {way!r}", where="capture", fix=f"use {', '.join(WAYS)}")
    return way


def take(source: Path, target: Path, name: str, way: str) -> tuple[FileProof, str]:
    """Make `source` the new file `target`, durable; its proof, and which way it came.

    `link` is for files that the application never writes to again (it writes new ones and renames
    them); where a link is not offered it is a reflink, and where that is not offered a copy.
    `auto` is a reflink or a copy.
    """
    if way == LINK and _link(source, target):
        return _settled(target, name), LINK
    if way != COPY and _clone(source, target):
        return _settled(target, name), REFLINK
    return copy(source, target, name), COPY


def copy(source: Path, target: Path, name: str, algorithm: str = "blake3") -> FileProof:
    """Copy durably and digest on the way."""
    hasher, size = new_hasher(algorithm), 0
    with source.open("rb", buffering=0) as reader, target.open("xb", buffering=0) as writer:
        while block := reader.read(_READ_BYTES):
            hasher.update(block)
            size += len(block)
            view = memoryview(block)
            while view:
                view = view[writer.write(view) :]
        os.fsync(writer.fileno())
    return FileProof(name, size, f"{algorithm}:{hasher.hexdigest()}")


def _settled(path: Path, name: str) -> FileProof:
    """Make a file durable that somebody else wrote, and prove it."""
    with path.open("rb", buffering=0) as stream:
        os.fsync(stream.fileno())
    return prove_file(path, name)


def _link(source: Path, target: Path) -> bool:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NOT_OFFERED:
            return False
        raise
    return True


def _clone(source: Path, target: Path) -> bool:
    """False, and no file, where the file system cannot share blocks between these two."""
    with source.open("rb", buffering=0) as reader, target.open("xb", buffering=0) as writer:
        try:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        except OSError as error:
            target.unlink()
            if error.errno in _NOT_OFFERED:
                return False
            raise
    return True
