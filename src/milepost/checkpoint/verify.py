"""Is a generation intact? Every damage is named: which file, and which block of it."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from milepost.checkpoint.blocks import BLOCKS_ALGORITHM
from milepost.checkpoint.crypt import UserKey, WrongKey
from milepost.checkpoint.decode import blocks_digest, read_data_file
from milepost.checkpoint.manifest import Manifest
from milepost.checkpoint.store import CheckpointStore
from milepost.durable import digest_file
from milepost.errors import DataError
from milepost.model import FileProof


@dataclass(frozen=True, slots=True)
class Damage:
    """Something is wrong with a generation; `where` is a path, `what` may name a block."""

    generation: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.generation}: {self.where}: {self.what}"


def verify_generation(
    store: CheckpointStore,
    name: str,
    *,
    deep: bool = True,
    key: UserKey | None = None,
    trusted: Container[str] = (),
) -> tuple[Damage, ...]:
    """What is wrong with a generation and its bases; empty when it is intact.

    `deep` reads and digests every byte, otherwise the manifests, names and sizes are compared.
    A damaged block of an encrypted file is only named when `key` is given. Bases that are
    `trusted` were read before and are not read again.
    """
    try:
        manifest = store.manifest(name)
    except DataError as error:
        return (_damage(name, error),)
    found = [
        damage
        for proof in manifest.files
        if (damage := check_file(store.path(name), proof, name, deep)) is not None
    ]
    if deep and key is not None and manifest.kind == "arrays":
        found = [_locate(store, manifest, damage, key) for damage in found]
    for base in manifest.bases:
        is_deep = deep and base not in trusted
        found += verify_generation(store, base, deep=is_deep, key=key, trusted=trusted)
    return tuple(found)


def check_file(folder: Path, proof: FileProof, name: str, deep: bool) -> Damage | None:
    """Compare one file of a generation with its proof."""
    path = folder / proof.path
    if path.is_symlink() or not path.is_file():
        return Damage(name, str(path), "is a link" if path.is_symlink() else "is missing")
    size = path.stat().st_size
    if size != proof.size_bytes:
        return Damage(name, str(path), f"has {size} bytes, the manifest says {proof.size_bytes}")
    return _check_content(path, proof, name) if deep else None


def _check_content(path: Path, proof: FileProof, name: str) -> Damage | None:
    algorithm = proof.digest.partition(":")[0]
    try:
        found = (
            blocks_digest(path) if algorithm == BLOCKS_ALGORITHM else digest_file(path, algorithm)
        )
    except DataError as error:
        return Damage(name, error.where or str(path), error.what)
    if found != proof.digest:
        return Damage(name, str(path), "its digest differs from the manifest")
    return None


def _locate(store: CheckpointStore, manifest: Manifest, damage: Damage, key: UserKey) -> Damage:
    """Read a damaged encrypted file with its key to say which block it is."""
    path = Path(damage.where)
    file_name = str(path.relative_to(store.path(manifest.name)))
    try:
        read_data_file(path, lambda base: store.path(base) / file_name, key)
    except WrongKey:
        return damage
    except DataError as error:
        return _damage(manifest.name, error, str(path))
    return damage


def _damage(name: str, error: DataError, where: str = "") -> Damage:
    return Damage(name, error.where or where, error.what)
