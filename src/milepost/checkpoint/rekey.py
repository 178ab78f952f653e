"""Exchange the user's key: the data keys are wrapped anew, no data is written.

Only the first page of each data file changes, and with it the digests in manifest and OK. What
they will be is written down first (`.rekey.json`), so that a crash in the middle is finished
later, without any key.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.checkpoint.blocks import pack_head, parse_head
from milepost.checkpoint.crypt import UserKey, unwrapped_key, wrapped_key
from milepost.checkpoint.layout import PAGE_BYTES
from milepost.checkpoint.manifest import MANIFEST, OK
from milepost.checkpoint.store import CheckpointStore, digest_bytes
from milepost.durable import (
    atomic_file,
    fsync_directory,
    new_hasher,
    read_json,
    storage_errors,
    write_json,
)
from milepost.errors import DataError
from milepost.model import FileProof

_RECORD = ".rekey.json"
_READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Rekeyed:
    """A generation; `files` data files of it were wrapped anew (0: nothing was to be done)."""

    generation: str
    files: int


def rekey(store: CheckpointStore, old: UserKey, new: UserKey) -> tuple[Rekeyed, ...]:
    """Wrap the data keys of every generation under `new`; what is under `new` already stays.

    Each file is read once, since its digest changes. Errors: WrongKey for a file under a third
    key; DataError for a damaged one, which is not blessed with a new digest.
    """
    finish_rekeys(store)
    return tuple(Rekeyed(name, _rekey(store, name, old, new)) for name in store.generations())


def finish_rekeys(store: CheckpointStore) -> tuple[str, ...]:
    """Complete what an interrupted `rekey` began; returns the generations."""
    begun = [name for name in store.names() if (store.path(name) / _RECORD).is_file()]
    for name in begun:
        _apply(store, name)
    return tuple(begun)


def _rekey(store: CheckpointStore, name: str, old: UserKey, new: UserKey) -> int:
    folder, manifest = store.path(name), store.manifest(name)
    if manifest.kind != "arrays":
        return 0
    pages: dict[str, str] = {}
    digests: dict[str, str] = {}
    for proof in manifest.files:
        page = _new_page(folder / proof.path, old, new)
        if page is not None:
            digests[proof.path] = _digest_with(folder / proof.path, proof, page)
            pages[proof.path] = base64.b64encode(page).decode("ascii")
    if not pages:
        return 0
    said: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
    for item in said["files"]:
        item["digest"] = digests.get(item["path"], item["digest"])
    text = json.dumps(said, indent=1, allow_nan=False) + "\n"
    write_json(folder / _RECORD, {"pages": pages, "manifest": text})
    _apply(store, name)
    return len(pages)


def _new_page(path: Path, old: UserKey, new: UserKey) -> bytes | None:
    """The first page under the new key; None when nothing is to be done."""
    with path.open("rb") as stream:
        info = parse_head(stream.read(PAGE_BYTES), path)
    if info is None or info.get("key_id") == new.key_id:
        return None
    page = pack_head(wrapped_key(unwrapped_key(info, old, path), new))
    if len(page) != PAGE_BYTES:
        raise DataError("the wrapped key does not fit into the first page", where=path)
    return page


def _digest_with(path: Path, proof: FileProof, page: bytes) -> str:
    """The digest that the file has with another first page, after its own was checked."""
    algorithm = proof.digest.partition(":")[0]
    then, now = new_hasher(algorithm), new_hasher(algorithm)
    with path.open("rb") as stream:
        then.update(stream.read(PAGE_BYTES))
        now.update(page)
        while part := stream.read(_READ_BYTES):
            then.update(part)
            now.update(part)
    if f"{algorithm}:{then.hexdigest()}" != proof.digest:
        raise DataError("its digest differs from the manifest", where=path)
    return f"{algorithm}:{now.hexdigest()}"


def _apply(store: CheckpointStore, name: str) -> None:
    """Do what the record says; may be done any number of times."""
    folder = store.path(name)
    record = read_json(folder / _RECORD)
    for file_name, page in record["pages"].items():
        _write_page(folder / file_name, base64.b64decode(page))
    data = record["manifest"].encode()
    with atomic_file(folder / MANIFEST, "wb") as stream:
        stream.write(data)
    with atomic_file(folder / OK) as stream:
        stream.write(f"{digest_bytes(data)}\n")
    store.note("rekeyed", name)
    os.unlink(folder / _RECORD)
    fsync_directory(folder)


def _write_page(path: Path, page: bytes) -> None:
    with storage_errors(path):
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(fd, page, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
