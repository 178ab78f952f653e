"""Write a generation out as plain files, for a person or another program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from milepost.checkpoint.crypt import UserKey
from milepost.checkpoint.files import export_files
from milepost.checkpoint.legal import COMMAND, Wanted, check_legal, wanted_now
from milepost.checkpoint.manifest import Manifest
from milepost.checkpoint.restore import load
from milepost.checkpoint.search import Found, Lost, find_generation, intact
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.upload import Remote
from milepost.durable import inside, write_json
from milepost.errors import DataError


def export_generation(
    store: CheckpointStore,
    target: Path,
    generation: str | None = None,
    allow: Sequence[str] = (),
    remotes: Sequence[Remote] = (),
    key: UserKey | None = None,
) -> dict[str, Any]:
    """Write one generation (the newest intact one by default) into the new folder `target`.

    Another number of ranks is no obstacle here. Returns plain data about what was taken. Errors:
    as `find_generation`; DataError when `target` exists.
    """
    if target.exists():
        raise DataError("exists already", where=target, fix="name a new folder")
    wanted = wanted_now(allow, can_redecompose=True, caller=COMMAND)
    found = _found(store, generation, wanted, remotes, key)
    target.mkdir(parents=True)
    if found.manifest.kind == "files":
        export_files(store, found.manifest, target)
    else:
        for rank in found.manifest.ranks:
            _export_rank(store, found.manifest, rank, target, key)
    return {
        "generation": found.manifest.name,
        "step": found.manifest.step,
        "tier": found.tier,
        "damages": list(found.damages),
        "lost": {"steps": found.lost.steps, "seconds": found.lost.seconds},
    }


def _found(
    store: CheckpointStore,
    generation: str | None,
    wanted: Wanted,
    remotes: Sequence[Remote],
    key: UserKey | None,
) -> Found[None]:
    check = intact(store, key)
    if generation is None:
        found = find_generation(store, wanted, check, remotes)
        if found is None:
            raise DataError("holds no generation", where=store.folder)
        return found
    manifest = store.manifest(generation)
    check_legal(manifest, wanted, store.path(generation))
    check(manifest)
    return Found(manifest, None, "scratch", (), Lost(0, 0.0))


def _export_rank(
    store: CheckpointStore, manifest: Manifest, rank: int, target: Path, key: UserKey | None
) -> None:
    folder = target if len(manifest.ranks) == 1 else target / f"rank_{rank}"
    decoded = load(store, manifest, rank, key)
    for name, array in decoded.arrays.items():
        path = inside(folder, f"{name}.npy")
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array, allow_pickle=False)
    write_json(folder / "meta.json", json.loads(json.dumps(decoded.info.get("meta"))))
