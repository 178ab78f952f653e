"""Apply the retention rules to a store, or to a tier."""

from __future__ import annotations

import time
from dataclasses import replace

from milepost.checkpoint.crypt import UserKey
from milepost.checkpoint.manifest import Manifest
from milepost.checkpoint.retention import Kept, Retention, plan_prune
from milepost.checkpoint.search import MAX_RESTORES
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote
from milepost.checkpoint.verify import verify_generation
from milepost.clock import epoch
from milepost.errors import DataError


def survey(store: CheckpointStore, hold: frozenset[str] = frozenset()) -> list[Kept]:
    """What is in the store, verified by manifests, names and sizes only; `hold` counts as gold."""
    gold, counts = store.gold() | hold, store.restore_counts()
    found = []
    for name in store.names():
        is_verified: bool | None = not verify_generation(store, name, deep=False)
        if counts.get(name, 0) >= MAX_RESTORES:
            is_verified = None
        try:
            manifest = store.manifest(name)
            created_s, bases = epoch(manifest.created), manifest.bases
        except DataError:
            created_s, bases = store.path(name).stat().st_mtime, ()
        found.append(Kept(name, created_s, bases, is_verified, name in gold))
    return found


def prune(
    store: CheckpointStore,
    rules: Retention,
    *,
    key: UserKey | None = None,
    hold: frozenset[str] = frozenset(),
    trusted: set[str] | None = None,
    is_dry: bool = False,
) -> tuple[str, ...]:
    """Delete what the rules do not keep; returns the names. `hold` is kept in any case.

    Before anything goes, the newest generation is read back and verified byte by byte; one that
    is damaged does not count among the kept. `trusted` are generations this process verified
    before: as bases they are not read again; the newest is added to them.
    """
    found = survey(store, hold)
    plan = plan_prune(found, rules, time.time())
    while plan:
        newest = next(kept.name for kept in found if kept.is_verified)
        if not verify_generation(store, newest, key=key, trusted=trusted or ()):
            if trusted is not None:
                trusted.update((newest, *store.manifest(newest).bases))
            break
        found = [replace(k, is_verified=False) if k.name == newest else k for k in found]
        hold |= {newest}
        plan = tuple(name for name in plan_prune(found, rules, time.time()) if name not in hold)
    if not is_dry:
        for name in reversed(plan):  # a delta before its base
            store.remove(name)
    return plan


def prune_remote(remote: Remote, rules: Retention, gold: frozenset[str]) -> tuple[str, ...]:
    """Delete in a tier what the rules do not keep; what was proved when it was sent counts."""
    found = [_kept(remote.manifest(name), name in gold) for name in remote.generations()]
    plan = plan_prune(found, rules, time.time())
    for name in reversed(plan):
        remote.remove(name)
    return plan


def _kept(manifest: Manifest, is_gold: bool) -> Kept:
    return Kept(manifest.name, epoch(manifest.created), manifest.bases, True, is_gold)
