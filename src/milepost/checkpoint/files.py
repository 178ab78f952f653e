"""Generations of files that an application wrote itself: captured, verified, copied out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.checkpoint.capture import AUTO, check_way, copy, take
from milepost.checkpoint.environment import current_environment
from milepost.checkpoint.legal import Wanted
from milepost.checkpoint.manifest import Manifest, Metrics, Output, check_file_name
from milepost.checkpoint.search import Lost, find_generation, intact
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote
from milepost.clock import utc_now
from milepost.durable import fsync_directory, storage_errors
from milepost.errors import DataError
from milepost.model import FileProof


@dataclass(frozen=True, slots=True)
class RestoredFiles:
    """Files of a generation, now in a folder of the application; see `Saved`."""

    manifest: Manifest
    tier: str
    damages: tuple[str, ...]
    lost: Lost
    seconds: float


def commit_files(
    store: CheckpointStore,
    step: int,
    files: Mapping[str, Path],
    *,
    rng: Any = None,
    solver: Mapping[str, Any] | None = None,
    outputs: Sequence[Output] = (),
    control: Mapping[str, Any] | None = None,
    capture: str = AUTO,
    fence: Callable[[], None] = lambda: None,
) -> Manifest:
    """Commit `files` (name in the generation -> path) as one generation; returns its manifest.

    The files are captured as `capture` says (`take` has the ways), digested and made durable; they
    must not change meanwhile, which is checked. Errors: DataError for a file that is empty, a link, or changed under the copy;
    StorageError; what `fence` raises.
    """
    start = time.monotonic()
    check_way(capture)
    fence()
    draft = store.begin()
    try:
        proofs = tuple(
            _capture(path, draft.path(name), name, capture) for name, path in sorted(files.items())
        )
        size = sum(proof.size_bytes for proof in proofs)
        manifest = Manifest(
            name=draft.name,
            step=step,
            created=utc_now(),
            files=proofs,
            environment=current_environment(),
            kind="files",
            rng=rng,
            solver=dict(solver or {}),
            outputs=tuple(outputs),
            control=control,
            metrics=Metrics(None, round(time.monotonic() - start, 6), size, size),
        )
        store.note("created", draft.commit(manifest, fence))
    except BaseException:
        draft.abandon()
        raise
    return manifest


def restore_files(
    store: CheckpointStore, target: Path, wanted: Wanted, remotes: Sequence[Remote] = ()
) -> RestoredFiles | None:
    """Copy the files of the newest legal, intact generation into `target`, replacing them there.

    None when there is no generation. The restore is counted (`note_restore`); tell the store with
    `clear_restore` when the application got past it. Errors as `find_generation`.
    """
    start = time.monotonic()
    found = find_generation(store, wanted, intact(store), remotes)
    if found is None:
        return None
    store.note_restore(found.manifest.name)
    export_files(store, found.manifest, target)
    return RestoredFiles(
        found.manifest, found.tier, found.damages, found.lost, time.monotonic() - start
    )


def export_files(store: CheckpointStore, manifest: Manifest, target: Path) -> None:
    """Copy the files of a generation into `target`; what does not match its digest is refused."""
    for proof in manifest.files:
        check_file_name(proof.path)
        source, place = store.path(manifest.name) / proof.path, target / proof.path
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.name}.restoring")
        with storage_errors(place):
            temporary.unlink(missing_ok=True)
            copied = copy(source, temporary, proof.path, proof.digest.partition(":")[0])
            if copied != proof:
                temporary.unlink()
                raise DataError("its digest differs from the manifest", where=source)
            os.replace(temporary, place)


def _capture(source: Path, target: Path, name: str, way: str) -> FileProof:
    before = source.lstat()
    if source.is_symlink() or before.st_size == 0:
        kind = "is a link" if source.is_symlink() else "is empty"
        raise DataError(
            f"{kind}, which is no checkpoint",
            where=source,
            fix="wait until the application has written it",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with storage_errors(target):
        proof, _ = take(source, target, name, way)
        fsync_directory(target.parent)
    after = source.stat()
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise DataError(
            "changed while it was captured",
            where=source,
            fix="commit it when the application has closed it",
        )
    return proof
