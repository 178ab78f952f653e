"""One bit turns over, anywhere in any file: it is found, and what is restored is right."""

from __future__ import annotations

import random
from pathlib import Path

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


@pytest.fixture(params=["none", "zstd"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A full generation and two deltas."""
    folder = tmp_path / "ckpt"
    x = np.round(np.random.default_rng(1).standard_normal(COUNT), 3)
    with Checkpointer(folder, rotation=3, compression=request.param) as ck:
        for step in range(3):
            x[:100] = step
            ck.save(step, {"x": x}, {"step": step, "sum": float(x.sum())})
            ck.wait()
    return folder


def is_padding(path: Path, at: int, compression: str) -> bool:
    """Between the last block of a raw file and the page after it are zeros that nobody reads."""
    data = path.read_bytes()
    tail = int.from_bytes(data[-72:-64], "little")
    is_behind_the_blocks = PAGE_BYTES <= at < tail and tail - at < PAGE_BYTES
    return compression == "none" and is_behind_the_blocks and data[at] == 0


def test_every_flipped_bit_is_found(folder: Path, request: pytest.FixtureRequest) -> None:
    compression = request.node.callspec.params["folder"]
    store, chance = CheckpointStore(folder), random.Random(5)
    names = store.generations()
    silent = []
    for generation in names:
        for file_name, flips in FLIPS.items():
            path = folder / generation / file_name
            good = path.read_bytes()
            for _ in range(flips):
                at, bit = chance.randrange(len(good)), chance.randrange(8)
                bad = bytearray(good)
                bad[at] ^= 1 << bit
                path.write_bytes(bad)
                if not verify_generation(store, generation):
                    path.write_bytes(good)
                    silent.append((generation, file_name, at))
                    assert is_padding(path, at, compression), silent[-1]
            path.write_bytes(good)
    assert len(silent) < 30
    assert not any(verify_generation(store, name) for name in names)


def test_what_is_restored_after_a_flip_is_right(folder: Path) -> None:
    """An older generation, or an error; never a wrong number."""
    chance = random.Random(6)
    taken: dict[object, int] = {}
    for _ in range(40):
        path = chance.choice(sorted(folder.glob("0*/*")))
        good = path.read_bytes()
        bad = bytearray(good)
        bad[chance.randrange(len(good))] ^= 1 << chance.randrange(8)
        path.write_bytes(bad)
        try:
            with Checkpointer(folder) as ck:
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
