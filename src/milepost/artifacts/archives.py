"""Checks of archives: every byte is read and compared with the checksums inside the file."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING

from milepost.artifacts.bgzf import END_BLOCK
from milepost.artifacts.contents import Artifact

if TYPE_CHECKING:
    import zipfile

_BLOCK_BYTES = 1 << 20


def gzip_file(artifact: Artifact) -> None:
    """A whole gzip file; with `bgzf` (implied by .bam and .bcf) its end block too.

    A writer killed between two BGZF blocks leaves valid gzip: only the end block tells.
    """
    import gzip
    import zlib

    size = os.stat(artifact.path).st_size
    if size == 0:
        artifact.fail("is empty, gzip expected")
    try:
        with gzip.open(artifact.path, "rb") as stream:
            while stream.read(_BLOCK_BYTES):
                pass
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        artifact.fail(f"is cut or damaged ({error})")
    if artifact.options.get("bgzf", artifact.path.endswith((".bam", ".bcf"))):
        with Path(artifact.path).open("rb") as stream:
            stream.seek(max(0, size - len(END_BLOCK)))
            if stream.read() != END_BLOCK:
                artifact.fail("lacks its BGZF end block: its writer was killed or out of space")


def zip_file(artifact: Artifact) -> None:
    """A whole zip file in which every member has its checksum; with `names` inside."""
    with _opened(artifact) as archive:
        _intact(artifact, archive)
        _holds(artifact, [str(name) for name in artifact.options.get("names", ())], archive)


def npz(artifact: Artifact) -> None:
    """A whole npz file: checksums, array headers and lengths agree; with `keys` inside.

    Arrays of Python objects are refused: reading them would run code (pickle).
    """
    with _opened(artifact) as archive:
        _intact(artifact, archive)
        _holds(artifact, [f"{key}.npy" for key in artifact.options.get("keys", ())], archive)
        for info in archive.infolist():
            with archive.open(info) as stream:
                _is_array(artifact, info.filename, stream, info.file_size)


def _opened(artifact: Artifact) -> zipfile.ZipFile:
    import zipfile

    try:
        return zipfile.ZipFile(artifact.path)
    except zipfile.BadZipFile as error:
        artifact.fail(f"is cut or damaged ({error})")


def _intact(artifact: Artifact, archive: zipfile.ZipFile) -> None:
    import zipfile
    import zlib

    try:
        bad = archive.testzip()
    except (EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
        artifact.fail(f"is cut or damaged ({error})")
    except RuntimeError as error:
        artifact.fail(f"cannot be read ({error})")
    if bad is not None:
        artifact.fail(f"its member {bad!r} is damaged")


def _holds(artifact: Artifact, wanted: list[str], archive: zipfile.ZipFile) -> None:
    names = set(archive.namelist())
    if not names:
        artifact.fail("holds nothing")
    if missing := [name for name in wanted if name not in names]:
        artifact.fail(f"holds no {missing[0]!r}")


def _is_array(artifact: Artifact, name: str, stream: IO[bytes], size_bytes: int) -> None:
    from numpy.lib import format as npy

    try:
        version = npy.read_magic(stream)
        reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = reader(stream)
        start = stream.tell()
    except ValueError as error:
        artifact.fail(f"its member {name!r} is no array ({error})")
    if dtype.hasobject:
        artifact.fail(f"its member {name!r} holds Python objects, which would run code when read")
    if start + math.prod(shape) * dtype.itemsize != size_bytes:
        artifact.fail(f"its member {name!r} is shorter or longer than its header says")
