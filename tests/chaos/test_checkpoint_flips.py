"""One bit turns over, anywhere in any file: it is found, and what is restored is right."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.layout import PAGE_BYTES
from milepost.checkpoint.manifest import MANIFEST, OK
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.verify import verify_generation
from milepost.errors import DataError

pytestmark = pytest.mark.chaos
FLIPS = {"rank_0.bin": 60, MANIFEST: 40, OK: 10}
COUNT = 40_001
"""Numbers in the array: its last page is not full."""


@pytest.fixture(params=[("none", False), ("zstd", False), ("zstd", True)])
def way(request: pytest.FixtureRequest) -> tuple[str, bool]:
    """Compression, and whether it is encrypted."""
    compression, is_secret = request.param
    return compression, is_secret


@pytest.fixture
def encrypt(way: tuple[str, bool], monkeypatch: pytest.MonkeyPatch) -> dict[str, str] | None:
    monkeypatch.setenv("FLIP_KEY", "ab" * 32)
    return {"key_env": "FLIP_KEY"} if way[1] else None


@pytest.fixture
def folder(way: tuple[str, bool], encrypt: dict[str, str] | None, tmp_path: Path) -> Path:
    """A full generation and two deltas; with zstd, blocks XORed with those before."""
    folder = tmp_path / "ckpt"
    x = np.round(np.random.default_rng(1).standard_normal(COUNT), 3)
    with Checkpointer(folder, rotation=3, compression=way[0], encrypt=encrypt) as ck:
        for step in range(3):
            x[:100] = step
            ck.save(step, {"x": x}, {"step": step, "sum": float(x.sum())})
            ck.wait()
    return folder


def flipped(path: Path, at: int, bit: int) -> bytes:
    """Turn one bit of a file over; returns what was in it."""
    good = path.read_bytes()
    bad = bytearray(good)
    bad[at] ^= 1 << bit
    path.write_bytes(bad)
    return good


def test_every_flipped_bit_is_found(folder: Path) -> None:
    store, chance = CheckpointStore(folder), random.Random(5)
    names = store.generations()
    for generation in names:
        for file_name, flips in FLIPS.items():
            path = folder / generation / file_name
            for _ in range(flips):
                at, bit = chance.randrange(path.stat().st_size), chance.randrange(8)
                good = flipped(path, at, bit)
                assert verify_generation(store, generation), (generation, file_name, at, bit)
                path.write_bytes(good)
    assert not any(verify_generation(store, name) for name in names)


def edges(path: Path) -> dict[str, int]:
    """A byte in each of the places that hold no data: what stands between the parts of a file."""
    data = path.read_bytes()
    offset, size, *_ = struct.unpack_from("<QQQ", data, len(data) - 72)
    gap = offset - 1 if data[offset - 1] == 0 else None
    found = {
        "behind the key": PAGE_BYTES - 1,
        "version of the head": 16,
        "length in the head": 20,
        "behind the tail": offset + size if offset + size < len(data) - 128 else None,
        "before the end": len(data) - 128,
        "last zero": len(data) - 73,
        "version of the end": len(data) - 56,
        "between blocks and tail": gap,
    }
    return {what: at for what, at in found.items() if at is not None}


def test_a_flip_where_no_data_is_counts_too(folder: Path, encrypt: Any) -> None:
    """Verify, and a restore of that generation, refuse it; an older one is taken."""
    store = CheckpointStore(folder)
    newest, second, _ = store.generations()
    path = folder / newest / "rank_0.bin"
    places = edges(path)
    assert len(places) >= 7
    for what, at in places.items():
        for bit in (0, 3, 7):
            good = flipped(path, at, bit)
            assert verify_generation(store, newest), what
            with Checkpointer(folder, encrypt=encrypt) as ck:
                saved = ck.restore()
            assert saved is not None
            assert saved.generation == second, what
            path.write_bytes(good)


def test_what_is_restored_after_a_flip_is_right(
    folder: Path, encrypt: dict[str, str] | None
) -> None:
    """An older generation, or an error; never a wrong number."""
    chance = random.Random(6)
    taken: dict[object, int] = {}
    for _ in range(40):
        path = chance.choice(sorted(folder.glob("0*/*")))
        good = flipped(path, chance.randrange(path.stat().st_size), chance.randrange(8))
        try:
            with Checkpointer(folder, encrypt=encrypt) as ck:
                saved = ck.restore()
            assert saved is not None
            assert saved.arrays["x"][0] == saved.step == saved.meta["step"]
            assert float(saved.arrays["x"].sum()) == saved.meta["sum"]
            taken[saved.step] = taken.get(saved.step, 0) + 1
        except DataError as error:
            assert "no generation can be restored" in error.what
            taken["none"] = taken.get("none", 0) + 1
        path.write_bytes(good)
    assert taken.keys() >= {1, 2}
