"""Exchange the user's key: the data keys are wrapped anew, no data is written.

Only the first page of each data file changes, and with it the digests in manifest and OK. What
they will be is written down first, for all generations in one file (`.rekey.json`): until it is
there all are under the old key, from then on all are under the new one, since whoever finds it
completes what a crash cut short, for which no key is needed. A delta and its bases are therefore
never under two keys. Copies in other tiers: `rekey_far`.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.checkpoint.blocks import pack_head, parse_head
from milepost.checkpoint.crypt import UserKey, unwrapped_key, wrapped_key
from milepost.checkpoint.layout import PAGE_BYTES
from milepost.checkpoint.manifest import MANIFEST, OK, REKEY, Manifest
from milepost.checkpoint.store import CheckpointStore, digest_bytes
from milepost.durable import (
    atomic_file,
    fsync_directory,
    new_hasher,
    storage_errors,
)
from milepost.errors import DataError
from milepost.model import FileProof

_READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Rekeyed:
    """A generation; `files` data files of it were wrapped anew (0: nothing was to be done)."""

    generation: str
    files: int


@dataclass(frozen=True, slots=True)
class NewKeys:
    """What a generation becomes: the first page of each data file, and the manifest."""

    pages: Mapping[str, bytes]
    manifest: bytes

    def as_json(self) -> dict[str, Any]:
        pages = {name: _text(page.rstrip(b"\0")) for name, page in self.pages.items()}
        return {"pages": pages, "manifest": self.manifest.decode()}

    @classmethod
    def parse(cls, value: Any) -> NewKeys:
        pages = {str(n): base64.b64decode(p, validate=True) for n, p in value["pages"].items()}
        whole = {name: page.ljust(PAGE_BYTES, b"\0") for name, page in pages.items()}
        return cls(whole, value["manifest"].encode())


def record_of(plan: Mapping[str, NewKeys]) -> bytes:
    """The content of `.rekey.json` (generation -> what it becomes)."""
    return json.dumps({name: keys.as_json() for name, keys in plan.items()}).encode()


def parse_record(data: bytes, where: object) -> dict[str, NewKeys]:
    """Undo `record_of`; a DataError when it is none."""
    try:
        return {str(name): NewKeys.parse(keys) for name, keys in json.loads(data).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError("is no record of a key exchange", where=where) from error


def rekey(store: CheckpointStore, old: UserKey, new: UserKey) -> tuple[Rekeyed, ...]:
    """Wrap the data keys of every generation under `new`; what is under `new` already stays.

    Each file is read once, since its digest changes. Errors: WrongKey for a file under a third
    key; DataError for a damaged one, which is not blessed with a new digest. Nothing is changed
    then.
    """
    finish_rekeys(store)
    names = store.generations()
    found = {name: new_keys(store.path(name), store.manifest(name), old, new) for name in names}
    plan = {name: keys for name, keys in found.items() if keys is not None}
    if plan:
        with atomic_file(store.folder / REKEY, "wb") as stream:
            stream.write(record_of(plan))
        finish_rekeys(store)
    return tuple(Rekeyed(name, len(plan[name].pages) if name in plan else 0) for name in names)


def finish_rekeys(store: CheckpointStore) -> tuple[str, ...]:
    """Do what the record says, if there is one; returns the generations.

    May be done any number of times.
    """
    record = store.folder / REKEY
    try:
        plan = parse_record(record.read_bytes(), record)
    except FileNotFoundError:
        return ()
    for name, keys in plan.items():
        put_keys(store.path(name), keys)
        store.note("rekeyed", name)
    os.unlink(record)
    fsync_directory(store.folder)
    return tuple(plan)


def key_of(page: bytes, path: Path) -> str | None:
    """The key id that the first page of a data file names; None when it is not encrypted."""
    info = parse_head(page, path)
    return None if info is None else str(info.get("key_id"))


def keys_of(store: CheckpointStore, name: str) -> tuple[str, ...]:
    """The ids of the keys that a generation needs, its bases not counted."""
    manifest, found = store.manifest(name), set()
    for proof in manifest.files if manifest.kind == "arrays" else ():
        path = store.path(name) / proof.path
        with path.open("rb") as stream:
            found.add(key_of(stream.read(PAGE_BYTES), path))
    return tuple(sorted(key for key in found if key is not None))


def new_keys(folder: Path, manifest: Manifest, old: UserKey, new: UserKey) -> NewKeys | None:
    """What becomes of the generation whose files lie in `folder`; None: nothing is to be done."""
    pages: dict[str, bytes] = {}
    digests: dict[str, str] = {}
    for proof in manifest.files if manifest.kind == "arrays" else ():
        page = _new_page(folder / proof.path, old, new)
        if page is not None:
            digests[proof.path] = _digest_with(folder / proof.path, proof, page)
            pages[proof.path] = page
    if not pages:
        return None
    return NewKeys(pages, manifest.with_digests(digests).to_bytes())


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
        raise DataError(
            "its digest differs from the manifest",
            where=path,
            fix="delete that generation, or fetch it from another tier; nothing was changed",
        )
    return f"{algorithm}:{now.hexdigest()}"


def put_keys(folder: Path, keys: NewKeys) -> None:
    """Write first pages, manifest and OK over those in `folder`."""
    for file_name, page in keys.pages.items():
        _write_page(folder / file_name, page)
    with atomic_file(folder / MANIFEST, "wb") as stream:
        stream.write(keys.manifest)
    with atomic_file(folder / OK) as stream:
        stream.write(f"{digest_bytes(keys.manifest)}\n")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _write_page(path: Path, page: bytes) -> None:
    with storage_errors(path):
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(fd, page, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
