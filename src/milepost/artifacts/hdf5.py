"""The check of HDF5 files (also NetCDF-4): every dataset is read, piece by piece."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from milepost.artifacts.contents import Artifact

if TYPE_CHECKING:
    import h5py

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_PIECE_BYTES = 32 << 20
_ERRNO = re.compile(r"errno = (\d+)")
_OF_THE_DISK = {errno.EIO, errno.ESTALE, errno.ENOMEM, errno.ENOTCONN, errno.ESHUTDOWN}


def hdf5(artifact: Artifact) -> None:
    """A whole HDF5 file: each dataset can be read, `datasets` (full names) are among them.

    A file that its program did not close, that was cut, or one of whose chunks does not
    decompress or fails its Fletcher-32 checksum is refused. Needs the extra `hdf5`; bounded memory.
    """
    reader = _library(artifact)
    _begins_right(artifact)
    try:
        with reader.File(artifact.path, "r", locking=False) as opened:
            names = {name for name, dataset in _datasets(opened) if _is_read(artifact, dataset)}
    except (OSError, RuntimeError, KeyError) as error:
        _blame(artifact, error)
    wanted = artifact.options.get("datasets", ()) if artifact.options else ()
    if missing := [name for name in wanted if str(name).strip("/") not in names]:
        artifact.fail(f"holds no dataset {missing[0]!r}")


def _library(artifact: Artifact) -> Any:
    try:
        import h5py
    except ImportError:
        artifact.misconfigured(
            "the check `hdf5` needs h5py, which is not installed",
            "install it where the shards run: pip install 'milepost[hdf5]'",
        )
    return h5py


def _begins_right(artifact: Artifact) -> None:
    """Tell an empty file and one of another kind from a damaged one."""
    if os.stat(artifact.path).st_size == 0:
        artifact.fail("is empty, HDF5 expected")
    import h5py

    if not h5py.is_hdf5(artifact.path):
        artifact.fail("is no HDF5 file: it was cut at its beginning or is of another kind")


def _datasets(group: h5py.Group) -> Iterator[tuple[str, h5py.Dataset]]:
    """Each dataset of the file once, with its full name; links to other files are not followed."""
    import h5py

    names: list[str] = []
    group.visit(names.append)
    for name in names:
        found = group[name]
        if isinstance(found, h5py.Dataset):
            yield name, found


def _is_read(artifact: Artifact, dataset: h5py.Dataset) -> bool:
    if dataset.is_virtual or dataset.external:
        _sources_are_there(artifact, dataset)
    if dataset.shape is None:
        return True
    if dataset.shape == ():
        dataset[()]
        return True
    rows = _rows_per_piece(dataset)
    for start in range(0, dataset.shape[0], rows):
        dataset[start : start + rows]
    return True


def _rows_per_piece(dataset: h5py.Dataset) -> int:
    """Rows of one piece: whole chunks, about 32 MiB."""
    row_bytes: int = max(1, dataset.dtype.itemsize * dataset.size // max(1, dataset.shape[0]))
    rows = max(1, _PIECE_BYTES // row_bytes)
    chunk: int = 1 if dataset.chunks is None else dataset.chunks[0]
    return max(chunk, rows // chunk * chunk)


def _sources_are_there(artifact: Artifact, dataset: h5py.Dataset) -> None:
    """Missing sources of a virtual dataset are read as fill values, without a word."""
    named = [one.file_name for one in dataset.virtual_sources()] if dataset.is_virtual else []
    named += [one[0] for one in dataset.external or ()]
    folder = os.path.dirname(artifact.path)
    for name in named:
        if name != "." and not os.path.exists(os.path.join(folder, name)):
            artifact.fail(f"its dataset {dataset.name!r} is kept in {name!r}, which is missing")


def _blame(artifact: Artifact, error: Exception) -> None:
    """The file is damaged, unless the words of HDF5 name an error of the disk."""
    said = _ERRNO.search(str(error))
    number = int(said[1]) if said else getattr(error, "errno", None)
    if number in _OF_THE_DISK:
        raise OSError(number, os.strerror(number)) from error
    artifact.fail(f"is cut or damaged ({' '.join(str(error.args[0]).split())[:200]})")
