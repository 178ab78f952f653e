"""Generations in another tier: send, prove, list and fetch them.

    upload:  bases first; of each generation the data files, each proved at the far end by size
             and digest; then the manifest; then OK. What the far tier holds already is proved,
             not sent.
    fetch:   into a temporary folder of the store, proved against the manifest, then renamed.

An upload that was cut short leaves a folder without OK, which nobody takes for a generation.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from milepost.checkpoint import leftovers
from milepost.checkpoint.blocks import BLOCKS_ALGORITHM
from milepost.checkpoint.manifest import (
    MANIFEST,
    OK,
    REKEY,
    Manifest,
    commit_order,
    is_name,
    parse_manifest,
)
from milepost.checkpoint.rekey import NewKeys, parse_record, put_keys
from milepost.checkpoint.rekey_far import bring_keys
from milepost.checkpoint.store import CheckpointStore, digest_bytes
from milepost.checkpoint.verify import check_file
from milepost.durable import fsync_directory, prove_file, storage_errors
from milepost.errors import DataError, StorageError
from milepost.model import FileProof
from milepost.tiers.base import Progress, Tier, join


def upload_generation(
    store: CheckpointStore,
    generation: str,
    tier: Tier,
    name: str,
    *,
    fence: Callable[[], None] = lambda: None,
    progress: Progress | None = None,
    proved: dict[str, list[FileProof]] | None = None,
    key_id: str | None = None,
) -> list[FileProof]:
    """Send a generation and its bases below the folder `name` of `tier`, and prove them there.

    Returns the proofs of all their files; paths are names in the tier. Doing it again sends only
    what is missing. `proved` are generations that this process proved there before: they are not
    read again while they have their OK; new ones are added. With `key_id`, a copy there under
    another key becomes one under that. Errors: DataError when the local generation is damaged, or the far tier holds
    another content under one of the names; StorageError when the far end differs after sending;
    Refused by `fence`.
    """
    manifest = store.manifest(generation)
    proofs: list[FileProof] = []
    known = {} if proved is None else proved
    for one in (*manifest.bases, generation):
        fence()
        if one not in known or tier.stat(join(name, one, OK)) is None:
            known[one] = _upload_one(store, one, tier, name, fence, progress, key_id)
        proofs += known[one]
    return proofs


def _upload_one(
    store: CheckpointStore,
    generation: str,
    tier: Tier,
    name: str,
    fence: Callable[[], None],
    progress: Progress | None,
    key_id: str | None,
) -> list[FileProof]:
    folder, far = store.path(generation), join(name, generation)
    manifest = store.manifest(generation)
    bring_keys(store, generation, Remote("", tier, name), key_id)
    proofs = []
    for proof in manifest.files:
        damage = check_file(folder, proof, generation, deep=True)
        if damage is not None:
            raise DataError(f"{damage.what}; it is not uploaded", where=damage.where)
        proofs.append(_send(tier, folder / proof.path, join(far, proof.path), proof, progress))
    fence()
    for flag in (MANIFEST, OK):
        data = (folder / flag).read_bytes()
        tier.put_bytes(join(far, flag), data)
        proofs.append(FileProof(join(far, flag), len(data), digest_bytes(data)))
    return proofs


def _send(
    tier: Tier, local: Path, far: str, proof: FileProof, progress: Progress | None
) -> FileProof:
    """Send one file unless it is there already, and prove it at the far end.

    The proof is a plain digest of the whole file, which any program can check.
    """
    algorithm = proof.digest.partition(":")[0]
    if algorithm == BLOCKS_ALGORITHM:
        algorithm = "blake3"
        proof = prove_file(local, proof.path)
    if tier.stat(far) is not None and not _is_there(tier, far, proof, algorithm):
        tier.delete(far)
    if tier.stat(far) is None:
        tier.put_file(local, far, progress=progress)
        if not _is_there(tier, far, proof, algorithm):
            tier.delete(far)
            raise StorageError(
                "differs at the far end after it was sent, and was deleted there",
                where=f"{tier.place}/{far}",
                fix="run the same command again; if it happens twice, do not trust that place",
            )
    return FileProof(far, proof.size_bytes, proof.digest)


def _is_there(tier: Tier, far: str, proof: FileProof, algorithm: str) -> bool:
    """Does the far end hold that file? Read back from there, whoever sent it and whenever."""
    return tier.stat(far) == proof.size_bytes and tier.digest(far, algorithm) == proof.digest


@dataclass(frozen=True, slots=True)
class Remote:
    """The generations below the folder `prefix` of `tier`; `label` is `warm` or `cold`."""

    label: str
    tier: Tier
    prefix: str = ""

    def generations(self) -> list[str]:
        """Names of the complete generations, newest first."""
        names = [self._relative(name).split("/") for name in self.tier.list(self.prefix)]
        found = {parts[0] for parts in names if len(parts) == 2 and parts[1] == OK}
        if [REKEY] in names:  # one of them may have no OK just now
            found |= set(self.rekeying())
        return sorted(filter(is_name, found), key=commit_order, reverse=True)

    def manifest(self, name: str) -> Manifest:
        """The manifest of a generation, after its digest was compared with the OK flag."""
        where = f"{self.tier.place}/{join(self.prefix, name)}/{MANIFEST}"
        try:
            data = self.tier.read_bytes(join(self.prefix, name, MANIFEST))
            flag = (
                self.tier.read_bytes(join(self.prefix, name, OK)).decode("ascii", "replace").strip()
            )
        except FileNotFoundError as error:
            return self._becoming(name, DataError("is missing", where=where), error)
        if flag != digest_bytes(data):
            return self._becoming(name, DataError("does not match the digest in OK", where=where))
        return parse_manifest(data, where)

    def rekeying(self) -> dict[str, NewKeys]:
        """What generations become whose key exchange is under way or was interrupted."""
        place = join(self.prefix, REKEY)
        if self.tier.stat(place) is None:
            return {}
        return parse_record(self.tier.read_bytes(place), f"{self.tier.place}/{place}")

    def _becoming(
        self, name: str, error: DataError, cause: BaseException | None = None
    ) -> Manifest:
        """The manifest that a key exchange is about to write, else the error."""
        keys = self.rekeying().get(name)
        if keys is None:
            raise error from cause
        return parse_manifest(keys.manifest, error.where)

    def fetch(self, store: CheckpointStore, name: str) -> None:
        """Bring a generation and its bases into `store`, proved against their manifests.

        One that is there and intact stays; a damaged one is moved aside (`.damaged-…`).
        """
        becoming = self.rekeying()
        for one in (*self.manifest(name).bases, name):
            if not _is_intact(store, one):
                _move_aside(store, one)
                self._fetch_one(store, one, becoming.get(one))

    def prove(self, name: str, beside: Path) -> list[FileProof]:
        """Size and plain digest of every file of a generation and its bases, as read back now.

        Each file is read into a temporary folder below `beside` and removed again. Needs nothing but the tier: its node and the scratch tier may be gone. Errors: DataError
        for what does not match the manifest.
        """
        proofs = []
        for one in (*self.manifest(name).bases, name):
            far = join(self.prefix, one)
            proofs += [
                self._prove_file(far, one, proof, beside) for proof in self.manifest(one).files
            ]
            for flag in (MANIFEST, OK):
                data = self.tier.read_bytes(join(far, flag))
                proofs.append(FileProof(join(far, flag), len(data), digest_bytes(data)))
        return proofs

    def _prove_file(self, far: str, name: str, proof: FileProof, beside: Path) -> FileProof:
        place = join(far, proof.path)
        with tempfile.TemporaryDirectory(prefix=".prove-", dir=beside) as folder:
            local = Path(folder) / proof.path
            self._get(place, local)
            damage = check_file(Path(folder), proof, name, deep=True)
            if damage is not None:
                raise DataError(damage.what, where=f"{self.tier.place}/{place}")
            return prove_file(local, place)

    def remove(self, name: str) -> None:
        """Delete a generation: first its OK."""
        self.tier.delete(join(self.prefix, name, OK))
        self.tier.delete(join(self.prefix, name))

    def _fetch_one(self, store: CheckpointStore, name: str, keys: NewKeys | None) -> None:
        manifest = self.manifest(name)
        with storage_errors(store.folder):
            store.folder.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix=leftovers.prefix(store.attempt), dir=store.folder))
        try:
            for proof in manifest.files:
                self._get(join(self.prefix, name, proof.path), draft / proof.path)
            if keys is not None:
                manifest = parse_manifest(keys.manifest, draft)
                put_keys(draft, keys)
            for proof in manifest.files:
                damage = check_file(draft, proof, name, deep=True)
                if damage is not None:
                    where = f"{self.tier.place}/{join(self.prefix, name, proof.path)}"
                    raise DataError(damage.what, where=where)
            for flag in () if keys is not None else (MANIFEST, OK):
                self._get(join(self.prefix, name, flag), draft / flag)
            _publish(draft, store.path(name))
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def _get(self, name: str, local: Path) -> None:
        try:
            self.tier.get_file(name, local)
        except FileNotFoundError as error:
            raise DataError("is missing", where=f"{self.tier.place}/{name}") from error

    def _relative(self, name: str) -> str:
        return name[len(self.prefix) :].lstrip("/") if self.prefix else name


def _is_intact(store: CheckpointStore, name: str) -> bool:
    try:
        manifest = store.manifest(name)
    except DataError:
        return False
    folder = store.path(name)
    return all(check_file(folder, proof, name, deep=True) is None for proof in manifest.files)


def _move_aside(store: CheckpointStore, name: str) -> None:
    path = store.path(name)
    if path.exists():
        aside = tempfile.mkdtemp(prefix=f"{leftovers.DAMAGED_PREFIX}{name}-", dir=store.folder)
        os.rename(path, aside)
        fsync_directory(store.folder)


def _publish(draft: Path, target: Path) -> None:
    for root, _, _ in os.walk(draft):
        fsync_directory(root)
    os.rename(draft, target)
    fsync_directory(target.parent)
