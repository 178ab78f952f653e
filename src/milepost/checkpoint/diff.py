"""What changed between two generations, array by array."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from milepost.checkpoint.crypt import UserKey
from milepost.checkpoint.manifest import Manifest
from milepost.checkpoint.restore import load
from milepost.checkpoint.store import CheckpointStore
from milepost.errors import DataError

DIFF_BLOCK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Change:
    """One array of a rank (or one file; `rank` is None then).

    `how` is same, changed, added, removed or reshaped. Of a changed array: in how many of its
    `blocks` of 64 KiB something changed, how many bytes differ, and for floating point the
    largest absolute difference (None when a NaN or infinity came or went).
    """

    name: str
    rank: int | None
    how: str
    size_bytes: int
    blocks: int | None = None
    changed_blocks: int | None = None
    changed_bytes: int | None = None
    max_abs: float | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def diff_generations(
    store: CheckpointStore, first: str, second: str, key: UserKey | None = None
) -> tuple[Change, ...]:
    """What is different in `second`; both are read and verified. Refuses two different kinds."""
    one, two = store.manifest(first), store.manifest(second)
    if one.kind != two.kind:
        raise DataError(f"{first} holds {one.kind}, {second} holds {two.kind}", where=store.folder)
    if one.kind == "files":
        return tuple(_file_changes(one, two))
    ranks = sorted({*one.ranks, *two.ranks})
    return tuple(change for rank in ranks for change in _rank_changes(store, one, two, rank, key))


def _file_changes(one: Manifest, two: Manifest) -> Iterator[Change]:
    before, after = ({proof.path: proof for proof in m.files} for m in (one, two))
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        how = "added" if old is None else "removed" if new is None else "changed"
        if old is not None and new is not None and old.digest == new.digest:
            how = "same"
        proof = new or old
        assert proof is not None
        yield Change(name, None, how, proof.size_bytes)


def _rank_changes(
    store: CheckpointStore, one: Manifest, two: Manifest, rank: int, key: UserKey | None
) -> Iterator[Change]:
    before, after = (
        load(store, m, rank, key).arrays if rank in m.ranks else {} for m in (one, two)
    )
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            array = new if old is None else old
            assert array is not None
            yield Change(name, rank, "added" if old is None else "removed", array.nbytes)
        elif old.shape != new.shape or old.dtype != new.dtype:
            yield Change(name, rank, "reshaped", new.nbytes)
        else:
            yield _compare(name, rank, old, new)


def _compare(name: str, rank: int, old: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> Change:
    blocks = -(-new.nbytes // DIFF_BLOCK_BYTES)
    was, now = (np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (old, new))
    is_other = was != now
    changed_bytes = int(np.count_nonzero(is_other))
    if changed_bytes == 0:
        return Change(name, rank, "same", new.nbytes, blocks, 0, 0, _largest(old, new))
    starts = np.arange(0, new.nbytes, DIFF_BLOCK_BYTES)
    changed = int(np.count_nonzero(np.logical_or.reduceat(is_other, starts)))
    return Change(
        name, rank, "changed", new.nbytes, blocks, changed, changed_bytes, _largest(old, new)
    )


def _largest(old: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> float | None:
    """The largest absolute difference of floating point numbers; None where there is none."""
    if old.dtype.kind not in "fc" or old.size == 0:
        return None
    is_odd = ~np.isfinite(old) | ~np.isfinite(new)
    if np.array_equal(old[is_odd], new[is_odd], equal_nan=True):
        apart = np.abs(new[~is_odd] - old[~is_odd])
        return float(apart.max()) if apart.size else 0.0
    return None
