"""Read the newest generation that is legal and intact back into arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import numpy as np

from milepost.checkpoint.crypt import UserKey
from milepost.checkpoint.decode import Decoded, read_data_file
from milepost.checkpoint.legal import Wanted, is_same_cut
from milepost.checkpoint.manifest import Manifest
from milepost.checkpoint.meta import from_json
from milepost.checkpoint.search import Lost, find_generation
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.stored import Stored, known_blocks
from milepost.checkpoint.upload import Remote
from milepost.errors import DataError


@dataclass(frozen=True)
class Saved:
    """A restored state; `arrays, meta, step = saved` works too.

    `tier` is where it was found. `damages` are why newer ones were passed over, `lost` is what
    the newest of them had more.
    """

    arrays: dict[str, np.ndarray[Any, Any]]
    meta: Any
    step: int
    generation: str = ""
    tier: str = "scratch"
    damages: tuple[str, ...] = ()
    lost: Lost = field(default_factory=Lost)
    manifest: Manifest | None = None
    seconds: float | None = None
    known: Mapping[bytes, Stored] = field(default_factory=dict, repr=False)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.arrays, self.meta, self.step))

    def __repr__(self) -> str:
        return f"Saved(step={self.step}, generation={self.generation!r}, tier={self.tier!r})"


class Parts(Sequence[Saved]):
    """What each rank of a generation saved, read and verified when it is asked for.

    `version` is the decomposition version that the generation was cut by.
    """

    def __init__(
        self, store: CheckpointStore, manifest: Manifest, key: UserKey | None = None
    ) -> None:
        self._store, self._manifest, self._key = store, manifest, key
        self.version = manifest.decomposition_version

    def __len__(self) -> int:
        return len(self._manifest.ranks)

    @overload
    def __getitem__(self, index: int) -> Saved: ...
    @overload
    def __getitem__(self, index: slice) -> list[Saved]: ...
    def __getitem__(self, index: int | slice) -> Saved | list[Saved]:
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        rank = range(len(self))[index]
        return as_saved(self._manifest, load(self._store, self._manifest, rank, self._key))


Redecompose = Callable[[Parts, int, int], tuple[Mapping[str, Any], Any]]
"""(what the ranks saved, this rank, number of ranks now) -> arrays and meta of this rank."""


def load_cut(
    store: CheckpointStore,
    manifest: Manifest,
    wanted: Wanted,
    key: UserKey | None = None,
    redecompose: Redecompose | None = None,
) -> Saved:
    """This rank's state; through `redecompose` when the generation was cut in another way.

    The state that `redecompose` makes stands in no file, so the next save is a full one.
    """
    if is_same_cut(manifest, wanted):
        return as_saved(manifest, load(store, manifest, wanted.rank, key))
    assert redecompose is not None, "check_legal refuses without"
    made, meta = redecompose(Parts(store, manifest, key), wanted.rank, wanted.rank_count)
    arrays = {name: np.asanyarray(array) for name, array in made.items()}
    return Saved(arrays, meta, manifest.step, manifest.name, manifest=manifest)


def restore(
    store: CheckpointStore,
    wanted: Wanted,
    remotes: Sequence[Remote] = (),
    key: UserKey | None = None,
    redecompose: Redecompose | None = None,
) -> Saved | None:
    """The arrays and meta data of the newest legal generation whose every block is intact."""
    start = time.monotonic()

    def use(manifest: Manifest) -> Saved:
        return load_cut(store, manifest, wanted, key, redecompose)

    found = find_generation(store, wanted, use, remotes)
    if found is None:
        return None
    saved = found.result
    return replace(
        saved,
        tier=found.tier,
        damages=found.damages,
        lost=found.lost,
        seconds=time.monotonic() - start,
    )


def load(
    store: CheckpointStore, manifest: Manifest, rank: int = 0, key: UserKey | None = None
) -> Decoded:
    """Read one rank's data file of a generation; every block is checked."""
    name = manifest.ranks.get(rank)
    if name is None:
        raise DataError(f"holds no arrays of rank {rank}", where=store.path(manifest.name))
    path = store.path(manifest.name) / name
    digest = next((proof.digest for proof in manifest.files if proof.path == name), None)
    decoded = read_data_file(path, lambda base: store.path(base) / name, key, digest)
    for field_name, is_so in (
        ("generation", decoded.info.get("generation") == manifest.name),
        ("step", decoded.info.get("step") == manifest.step),
        ("bases", set(decoded.bases) <= set(manifest.bases)),
    ):
        if not is_so:
            raise DataError(f"its {field_name} is not the one in the manifest", where=path)
    return decoded


def as_saved(manifest: Manifest, decoded: Decoded) -> Saved:
    """What the application gets of a data file."""
    return Saved(
        arrays=decoded.arrays,
        meta=from_json(decoded.info.get("meta")),
        step=manifest.step,
        generation=manifest.name,
        manifest=manifest,
        known=known_blocks(decoded.index, (manifest.name, *decoded.bases)),
    )
