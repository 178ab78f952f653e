"""The block size follows how densely changes lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.density import density, next_block_bytes
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.verify import verify_generation

MIB, SMALL = 1 << 20, 64 << 10


def test_the_rule() -> None:
    gib = 1 << 30
    assert next_block_bytes(MIB, gib, 0.5, None) == MIB
    assert next_block_bytes(MIB, gib, 0.3, 0.1) == SMALL
    assert next_block_bytes(MIB, gib, 0.02, 0.1) == MIB, "there is nothing to spare"
    assert next_block_bytes(MIB, 8 * MIB, 0.3, 0.1) == MIB, "too small to matter"
    assert next_block_bytes(MIB, gib, 1.0, 1.0) == MIB
    assert next_block_bytes(SMALL, gib, 0.1, None) == SMALL
    assert next_block_bytes(SMALL, gib, 0.6, None) == MIB


def test_density_counts_pieces_of_changed_blocks() -> None:
    before = {0: (b"a", b"b"), 8: (b"c", b"d"), 16: (b"e", b"f")}
    assert density(before, before) is None
    assert density(before, {**before, 8: (b"c", b"x")}) == 0.5
    assert density({}, before) is None


def scattered(x: np.ndarray[Any, Any], rng: np.random.Generator) -> None:
    """Touch one number in about every second MiB."""
    x[rng.integers(0, len(x), len(x) // 262144)] += 1.0


def test_scattered_changes_get_small_blocks_that_a_restart_keeps(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(24 * 131072)
    with Checkpointer(tmp_path, rotation=9, compression="none") as ck:
        for step in range(5):
            scattered(x, rng)
            ck.save(step, {"x": x}, None)
            ck.wait()
    stored = [commit.bytes_stored for commit in ck.commits]
    assert stored[1] > 5 * MIB, "large blocks: everything around a change is written"
    assert stored[2] > x.nbytes, "the size changes: all of it once"
    assert max(stored[3:]) < 2 * MIB
    with Checkpointer(tmp_path, rotation=9, compression="none") as ck:
        saved = ck.restore()
        assert saved is not None
        assert np.array_equal(saved.arrays["x"], x)
        scattered(x, rng)
        ck.save(9, {"x": x}, None)
        ck.wait()
    assert ck.commits[0].bytes_stored < 2 * MIB
    store = CheckpointStore(tmp_path)
    assert not any(verify_generation(store, name) for name in store.generations())


def test_dense_changes_keep_large_blocks_and_bring_them_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(32 * 131072)
    sizes = []
    with Checkpointer(tmp_path, rotation=1, compression="none") as ck:
        for step in range(8):
            if step < 2:
                x += 1
            elif step < 5:
                scattered(x, rng)
            else:
                x += 1
            ck.save(step, {"x": x}, None)
            ck.wait()
            assert ck._committer is not None
            sizes.append(ck._committer._block_bytes)
        saved = ck.restore()
    assert sizes == [MIB, MIB, SMALL, SMALL, SMALL, MIB, MIB, MIB]
    assert saved is not None
    assert np.array_equal(saved.arrays["x"], x)
