"""Blocks that are XORed with the state before: smaller, bound to their base, never without it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milepost.checkpoint import codec
from milepost.checkpoint.base import MAX_DEPTH, Base
from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.committer import MAX_BASES
from milepost.checkpoint.crypt import load_key
from milepost.checkpoint.decode import read_info
from milepost.checkpoint.diff import diff_generations
from milepost.checkpoint.export import export_generation
from milepost.checkpoint.layout import plan_layout
from milepost.checkpoint.prune import prune
from milepost.checkpoint.rekey import rekey
from milepost.checkpoint.retention import Retention
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.stored import DEPTH_SHIFT
from milepost.checkpoint.verify import verify_generation
from milepost.errors import DataError

COUNT = 400_000
SECRET = {"key_env": "XOR_KEY"}


def atoms() -> np.ndarray[Any, Any]:
    """Positions of atoms: a lattice and noise, float32."""
    lattice = np.arange(COUNT, dtype=np.float64)[:, None] * [0.31, 0.0031, 0.00031]
    noise = np.random.default_rng(2).standard_normal((COUNT, 3)) * 0.02
    return (lattice + noise).astype(np.float32)


def saved_atoms(folder: Path, saves: int, **options: Any) -> list[np.ndarray[Any, Any]]:
    """Save atoms that move a little each time, beside an array that never changes."""
    x, rng, states = atoms(), np.random.default_rng(3), []
    fixed = np.random.default_rng(4).standard_normal(200_000)
    options = {"compression": "zstd", "rotation": 99, **options}
    with Checkpointer(folder, **options) as ck:
        for step in range(saves):
            x = (x + rng.standard_normal(x.shape) * 1e-3).astype(np.float32)
            ck.save(step, {"x": x, "fixed": fixed}, {"step": step})
            ck.wait()
            states.append(x)
    return states


def depths(store: CheckpointStore, name: str) -> set[int]:
    """How deep the blocks of a generation are XORed."""
    index = read_info(store.path(name) / "rank_0.bin", load_key(SECRET)).index
    return set((index["codec"] >> DEPTH_SHIFT).tolist())


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XOR_KEY", "ab" * 32)
    monkeypatch.setenv("NEW_KEY", "cd" * 32)


@pytest.mark.parametrize("encrypt", [None, SECRET])
def test_a_moving_state_is_xored_through_a_bounded_chain(
    tmp_path: Path, encrypt: dict[str, str] | None
) -> None:
    states = saved_atoms(tmp_path, MAX_DEPTH + 3, encrypt=encrypt)
    store = CheckpointStore(tmp_path)
    names = store.generations()[::-1]
    found = [max(depths(store, name)) for name in names]
    assert found == [0, *range(1, MAX_DEPTH + 1), 0, 1]
    sizes = [store.manifest(name).size_bytes for name in names]
    first_x = sizes[0] - 200_000 * 8
    assert max(sizes[1 : MAX_DEPTH + 1]) < 0.8 * first_x, "against the first without its constants"
    for name in names:
        bases = store.manifest(name).bases
        assert len(bases) <= MAX_BASES
        index = read_info(store.path(name) / "rank_0.bin", load_key(SECRET)).index
        assert index["source"].max(initial=0) <= len(bases)
        assert index["xor_source"].max(initial=0) <= len(bases)
        assert not verify_generation(store, name, key=load_key(encrypt))
    while names:
        with Checkpointer(tmp_path, encrypt=encrypt) as ck:
            saved = ck.restore()
        assert saved is not None
        assert saved.generation == names[-1]
        assert np.array_equal(saved.arrays["x"], states[len(names) - 1])
        shutil.rmtree(store.path(names.pop()))


def test_the_probe_takes_the_base_only_where_it_pays() -> None:
    x = atoms()
    y = (x + np.random.default_rng(3).standard_normal(x.shape) * 1e-3).astype(np.float32)
    here, before = (memoryview(a.reshape(-1).view(np.uint8))[: 1 << 20] for a in (y, x))
    near = codec.Sample(here, 4, lambda: before)
    other = codec.Sample(here, 4, lambda: memoryview(np.random.default_rng(1).bytes(1 << 20)))
    gone = codec.Sample(here, 4, lambda: None)
    shuffled, xored = codec.ZSTD | codec.SHUFFLE, codec.ZSTD | codec.SHUFFLE | codec.XOR
    assert codec.choose("auto", [near], 1.0, 2, is_based=True) == xored
    assert codec.choose("auto", [near], 1e15, 2, is_based=True) == codec.RAW
    assert codec.choose("auto", [near], None, 2, is_based=True) == codec.RAW
    assert codec.choose("auto", [near], 1.0, 2) == shuffled
    for sample in (other, gone):
        assert codec.choose("zstd", [sample], None, 2, is_based=True) == shuffled
    used, packed = codec.compress(xored, here, 4, before)
    assert used == codec.ZSTD | 4 << 8 | codec.XOR
    back = codec.decompress(used & ~codec.XOR, packed, len(here))
    assert codec.xor(back, before) == here


def flip_in_a_stored_block(store: CheckpointStore, name: str) -> None:
    path = store.path(name) / "rank_0.bin"
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)


def test_a_damaged_base_is_found_and_an_older_generation_taken(tmp_path: Path) -> None:
    states = saved_atoms(tmp_path, 4)
    store = CheckpointStore(tmp_path)
    one, two, three, four = store.generations()[::-1]
    flip_in_a_stored_block(store, two)
    assert not verify_generation(store, one)
    for name in (two, three, four):
        assert "block 2 is damaged" in str(verify_generation(store, name))
    with Checkpointer(tmp_path) as ck:
        saved = ck.restore()
    assert saved is not None
    assert saved.generation == one
    assert np.array_equal(saved.arrays["x"], states[0])
    shutil.rmtree(store.path(two))
    with Checkpointer(tmp_path) as ck:
        saved = ck.restore()
    assert saved is not None
    assert saved.generation == one, "a base that is gone is no better"


def test_nothing_is_built_on_a_damaged_base(tmp_path: Path) -> None:
    x = atoms()
    with Checkpointer(tmp_path, compression="zstd", rotation=99) as ck:
        ck.save(0, {"x": x})
        ck.wait()
        store = CheckpointStore(tmp_path)
        flip_in_a_stored_block(store, store.generations()[0])
        x = (x + 1e-3).astype(np.float32)
        ck.save(1, {"x": x})
        ck.wait()
    index = read_info(store.path(store.generations()[0]) / "rank_0.bin").index
    assert int(index["codec"][0]) >> DEPTH_SHIFT == 0
    assert set((index["codec"][1:] >> DEPTH_SHIFT).tolist()) == {1}


def test_a_base_under_another_key_is_not_used(tmp_path: Path) -> None:
    saved_atoms(tmp_path, 2, encrypt=SECRET)
    store = CheckpointStore(tmp_path)
    newest = store.generations()[0]
    block = plan_layout({"x": atoms(), "fixed": np.zeros(200_000)}).blocks[-1]

    def path_of(name: str) -> Path:
        return store.path(name) / "rank_0.bin"

    with Base(newest, path_of, load_key(SECRET)) as base:
        found = base.at(block)
        assert found is not None
        assert base.read(found) is not None
    for other in (load_key({"key_env": "NEW_KEY"}), None):
        with Base(newest, path_of, other) as base:
            assert base.at(block) is None


def test_a_restart_goes_on_with_the_restored_state_as_base(tmp_path: Path) -> None:
    saved_atoms(tmp_path, 2)
    with Checkpointer(tmp_path, compression="zstd", rotation=99) as ck:
        saved = ck.restore()
        assert saved is not None
        x = saved.arrays["x"] + np.float32(1e-3)
        ck.save(9, {**saved.arrays, "x": x})
        ck.wait()
    store = CheckpointStore(tmp_path)
    newest = store.generations()[0]
    assert max(depths(store, newest)) == 2
    assert set(store.manifest(newest).bases) == {"000001-a0", "000002-a0"}


def test_pruning_keeps_what_a_kept_generation_was_xored_with(tmp_path: Path) -> None:
    states = saved_atoms(tmp_path, 4, rotation=1)
    store = CheckpointStore(tmp_path)
    assert len(store.generations()) == 4, "all four are one chain"
    assert prune(store, Retention(rotation=1)) == ()
    with Checkpointer(tmp_path, compression="zstd", rotation=1) as ck:
        saved = ck.restore()
        assert saved is not None
        assert np.array_equal(saved.arrays["x"], states[-1])
        for step in range(4, 4 + MAX_BASES + 2):
            ck.save(step, {"x": saved.arrays["x"] + np.float32(step)})
            ck.wait()
            kept = set(store.generations())
            for name in kept:
                assert set(store.manifest(name).bases) <= kept
                assert not verify_generation(store, name)
    assert "000001-a0" not in store.generations(), "the chain ends some time"


def test_a_chain_is_sent_fetched_rekeyed_compared_and_exported(tmp_path: Path) -> None:
    warm, local, other = tmp_path / "warm", tmp_path / "local", tmp_path / "other"
    states = saved_atoms(local, 3, encrypt=SECRET, warm=str(warm))
    store, old = CheckpointStore(local), load_key(SECRET)
    new = load_key({"key_env": "NEW_KEY"})
    assert old is not None
    assert new is not None
    with Checkpointer(other, encrypt=SECRET, warm=str(warm), upload=False) as ck:
        saved = ck.restore()
    assert saved is not None
    assert saved.tier == "warm"
    assert np.array_equal(saved.arrays["x"], states[2])
    assert len(CheckpointStore(other).generations()) == 3, "with its bases"
    assert [one.files for one in rekey(store, old, new)] == [1, 1, 1]
    names = store.generations()
    assert not any(verify_generation(store, name, key=new) for name in names)
    changes = {one.name: one.how for one in diff_generations(store, names[1], names[0], new)}
    assert changes == {"x": "changed", "fixed": "same"}
    export_generation(store, tmp_path / "out", key=new)
    assert np.array_equal(np.load(tmp_path / "out" / "x.npy"), states[2])


def test_an_index_whose_base_does_not_fit_is_refused(tmp_path: Path) -> None:
    from milepost.checkpoint.datafile import DataFiles

    saved_atoms(tmp_path, 2)
    store = CheckpointStore(tmp_path)
    newest = store.generations()[0]
    with DataFiles(lambda name: store.path(name) / "rank_0.bin") as files:
        file = files.of(newest)
        n = int(np.flatnonzero(file.index["xor_source"])[0])
        row = file.index[n].copy()
        for field, value, what in (
            ("xor_source", 9, "names no base"),
            ("xor_number", 12345, "stores no block 12345"),
        ):
            bad = row.copy()
            bad[field] = value
            with pytest.raises(DataError, match=what):
                files.plain(file, bad, n)
        bad = row.copy()
        bad["xor_number"] += 1
        with pytest.raises(DataError, match=r"digest differs|does not fit"):
            files.plain(file, bad, n)
