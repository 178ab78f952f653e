"""Exchange the user's key in another tier: first pages, manifest and OK go there, no data.

    1. `.rekey.json`, beside the generations: what all of them become
    2. of each generation the first page of its data files, which are read back and compared with
       their digests; then its manifest and OK
    3. `.rekey.json` is deleted

Before 1 all generations are under the old key, from 1 on all are under the new one: whoever
fetches one takes what the record says over what he finds. An exchange that was interrupted is
finished by the next `rekey`, or by the next process that uploads there.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.checkpoint import leftovers
from milepost.checkpoint.blocks import BLOCKS_ALGORITHM
from milepost.checkpoint.crypt import UserKey
from milepost.checkpoint.layout import PAGE_BYTES
from milepost.checkpoint.manifest import MANIFEST, OK, REKEY, Manifest, parse_manifest
from milepost.checkpoint.rekey import NewKeys, Rekeyed, key_of, new_keys, record_of
from milepost.checkpoint.store import CheckpointStore, digest_bytes
from milepost.errors import DataError, StorageError
from milepost.tiers import Tier
from milepost.tiers.base import join

if TYPE_CHECKING:
    from milepost.checkpoint.upload import Remote

_FIX = "bring all under one key: `milepost ckpt rekey` with --warm and --cold"


def rekey_remote(
    store: CheckpointStore, remote: Remote, old: UserKey, new: UserKey
) -> tuple[Rekeyed, ...]:
    """Bring every generation of a tier under `new`; those in `store` must be already.

    What is in the store too needs only its first pages sent. What is in the tier alone is fetched
    once, into a temporary folder of the store, since its digests change. Errors: WrongKey for a
    file under a third key, DataError for a damaged one: nothing is changed then; StorageError.
    """
    finish_far(store, remote)
    names, plan = remote.generations(), {}
    for name in names:
        there = remote.manifest(name)
        keys = _from_store(store, there) or _from_tier(store, remote, there, old, new)
        if keys is not None:
            plan[name] = keys
    _exchange(store, remote, plan)
    return tuple(Rekeyed(name, len(plan[name].pages) if name in plan else 0) for name in names)


def finish_far(store: CheckpointStore, remote: Remote) -> tuple[str, ...]:
    """Complete what an interrupted exchange began; returns the generations."""
    plan = remote.rekeying()
    if plan:
        store.folder.mkdir(parents=True, exist_ok=True)
    for name, keys in plan.items():
        _apply(remote.tier, join(remote.prefix, name), keys)
        store.note("rekeyed", name, remote.label)
    if plan:
        remote.tier.delete(join(remote.prefix, REKEY))
    return tuple(plan)


def bring_keys(store: CheckpointStore, name: str, remote: Remote, key_id: str | None) -> None:
    """Before an upload: is the same generation there under another key?

    If so, and `key_id` is the key here, all copies there come under the keys of those here. It is
    a DataError when nobody said which key counts, or when a generation that is there alone needs
    one of these as its base: it could be read with neither key.
    """
    place = join(remote.prefix, name, MANIFEST)
    if remote.tier.stat(place) is None:
        return
    there = parse_manifest(remote.tier.read_bytes(place), place)
    if _from_store(store, there) is None:
        return
    known = {one: remote.manifest(one) for one in remote.generations()} | {name: there}
    plan = {one: keys for one, m in known.items() if (keys := _from_store(store, m)) is not None}
    pages = [page for keys in plan.values() for page in keys.pages.values()]
    here = set(store.generations())
    stranded = [one for one, m in known.items() if one not in here and set(m.bases) & set(plan)]
    if stranded or {key_of(page, store.path(name)) for page in pages} != {key_id}:
        raise DataError(
            f"{name} is under another key than the same generation in scratch",
            where=f"{remote.tier.place}/{remote.prefix}".rstrip("/"),
            fix=_FIX,
        )
    _exchange(store, remote, plan)


def keys_there(remote: Remote, name: str) -> tuple[str, ...]:
    """The ids of the keys that a generation of a tier needs, its bases not counted."""
    far, manifest, keys = join(remote.prefix, name), remote.manifest(name), remote.rekeying()
    found = set()
    for proof in manifest.files if manifest.kind == "arrays" else ():
        page = keys[name].pages.get(proof.path) if name in keys else None
        with _named(remote.tier, f"{far}/{proof.path}") as place:
            page = page or remote.tier.read_bytes(place, PAGE_BYTES)
        found.add(key_of(page, Path(proof.path)))
    return tuple(sorted(key for key in found if key is not None))


def _exchange(store: CheckpointStore, remote: Remote, plan: Mapping[str, NewKeys]) -> None:
    if plan:
        remote.tier.put_bytes(join(remote.prefix, REKEY), record_of(plan))
        finish_far(store, remote)


def _from_store(store: CheckpointStore, there: Manifest) -> NewKeys | None:
    """What makes it the generation in the store; None when that is none, another, or the same."""
    try:
        here = store.manifest(there.name)
    except DataError:
        return None
    if here == there or not here.is_same_but_for_keys(there):
        return None
    known = {proof.path: proof.digest for proof in there.files}
    pages = {}
    for proof in here.files:
        if known[proof.path] != proof.digest:
            with (store.path(here.name) / proof.path).open("rb") as stream:
                pages[proof.path] = stream.read(PAGE_BYTES)
    return NewKeys(pages, here.to_bytes())


def _from_tier(
    store: CheckpointStore, remote: Remote, there: Manifest, old: UserKey, new: UserKey
) -> NewKeys | None:
    if keys_there(remote, there.name) in ((), (new.key_id,)):
        return None
    # Named like a draft: one that a kill leaves behind is swept up with those.
    prefix = leftovers.prefix(store.attempt)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=store.folder) as place:
        for proof in there.files:
            with _named(remote.tier, join(remote.prefix, there.name, proof.path)) as far:
                remote.tier.get_file(far, Path(place) / proof.path)
        return new_keys(Path(place), there, old, new)


def _apply(tier: Tier, far: str, keys: NewKeys) -> None:
    """Make a generation what the record says; may be done any number of times."""
    for name, page in keys.pages.items():
        with _named(tier, f"{far}/{name}") as place:
            tier.replace_head(place, page)
    for proof in parse_manifest(keys.manifest, far).files:
        algorithm = proof.digest.partition(":")[0]
        if proof.path in keys.pages and algorithm != BLOCKS_ALGORITHM:
            _check(tier, f"{far}/{proof.path}", proof.digest, algorithm)
    flags = {MANIFEST: keys.manifest, OK: f"{digest_bytes(keys.manifest)}\n".encode()}
    for flag, data in flags.items():
        place = f"{far}/{flag}"
        if tier.stat(place) is None or tier.read_bytes(place) != data:
            tier.delete(place)
            tier.put_bytes(place, data)


def _check(tier: Tier, place: str, digest: str, algorithm: str) -> None:
    if tier.digest(place, algorithm) != digest:
        raise StorageError(
            "differs at the far end after its key was exchanged",
            where=f"{tier.place}/{place}",
            fix="if the generation is in scratch, delete it there and upload it anew",
        )


@contextlib.contextmanager
def _named(tier: Tier, place: str) -> Iterator[str]:
    """A file that is not there is damage of its generation."""
    try:
        yield place
    except FileNotFoundError as error:
        raise DataError("is missing", where=f"{tier.place}/{place}") from error
