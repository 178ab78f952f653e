"""What every storage tier can do; the comments here are the contract the tests hold it to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from milepost.errors import ConfigError, DataError

CHUNK_BYTES = 4 << 20
Progress = Callable[[int], None]
"""Called in the transferring thread with the bytes moved since the last call; it may wait
(that is how a rate limit works) or raise (that is how a transfer is cancelled)."""


@runtime_checkable
class Tier(Protocol):
    """A place for files by name. A name is relative, with `/` between its parts.

    A file appears whole or not at all, and a name never changes its content: what is there may
    be deleted but not replaced (but see `replace_head`). All methods may be called from several threads.
    Errors: DataError for a name that leaves the tier or that holds another content already;
    StorageError for a place that is full or may not be written; OSError for what may pass.
    """

    place: str
    """The path or URL that was opened, without secrets; names in reports start with it."""

    def put_file(self, local: Path, name: str, *, progress: Progress | None = None) -> None:
        """Store `local` as `name`, durable on return. The same content twice is no error."""

    def get_file(self, name: str, local: Path) -> None:
        """Copy `name` to the new file `local`. A missing name is a FileNotFoundError."""

    def list(self, prefix: str = "") -> list[str]:
        """Sorted names of all files below the folder `prefix`; none when there is no folder."""

    def stat(self, name: str) -> int | None:
        """Size in bytes, None when there is no such file."""

    def digest(self, name: str, algorithm: str = "blake3") -> str:
        """Digest as `algorithm:hex`, from the stored bytes as they are read back."""

    def read_bytes(self, name: str, limit: int | None = None) -> bytes:
        """Content of a small file, or its first `limit` bytes. A missing name is a
        FileNotFoundError."""

    def put_bytes(self, name: str, data: bytes) -> None:
        """As `put_file`, from memory."""

    def replace_head(self, name: str, head: bytes) -> None:
        """Put `head` in the place of the first bytes of a file that is longer; the rest is not
        sent again. Durable on return; doing it again is no error.

        The one exception to "a name never changes its content": for a key that is exchanged. A
        store of objects shows the old or the new one; in a folder the machine may die in the
        middle, so that the caller has to keep what is being written elsewhere.
        """

    def delete(self, prefix: str) -> None:
        """Delete the file `prefix` or all files below the folder `prefix`; missing is no error."""

    def clean(self, prefix: str = "") -> tuple[str, ...]:
        """Remove what uploads that were cut short left below the folder `prefix`; returns names.

        Such rests were never files of the tier, but take up room (parts of multipart uploads,
        temporary files). Only for the one process that may write below `prefix`.
        """

    def free_bytes(self) -> int | None:
        """Room that is left; None where the tier does not tell."""


def check_name(name: str) -> str:
    """Return `name` if it is a plain relative name, else a DataError."""
    parts = name.split("/")
    if not name or "\0" in name or "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise DataError(f"{name!r} is not a plain name below a tier", fix="use a relative path")
    return name


def join(*parts: str) -> str:
    """A name below a tier from its parts; empty ones do not count."""
    return "/".join(part.strip("/") for part in parts if part)


def conflict(place: str, name: str) -> DataError:
    """The error of a name that holds another content."""
    return DataError(
        "holds another content already and is never replaced",
        where=f"{place}/{name}",
        fix="delete it first if it is not needed, or use another name",
    )


def expand(place: str) -> str:
    """Expand `$NAME`, `${NAME}` and `~`; a name that is not set is a ConfigError."""
    expanded = os.path.expanduser(os.path.expandvars(place))
    if "$" in expanded:
        raise ConfigError(
            f"{place!r} names an environment variable that is not set",
            where="tiers",
            fix="set it, or write the path out",
        )
    return expanded
