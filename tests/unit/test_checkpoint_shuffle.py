"""Bytes of equal rank together: lossless, and only where a probe says that it pays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from milepost.checkpoint import codec
from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.layout import plan_layout
from milepost.errors import DataError

SMOOTH = np.sin(np.linspace(0, 20, 1 << 18)).astype(np.float32)
NOISE = np.random.default_rng(1).integers(0, 255, 1 << 20, np.uint8)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "f16"])
def test_it_comes_back(dtype: str) -> None:
    data = memoryview(SMOOTH.astype(dtype).view(np.uint8))
    item = np.dtype(dtype).itemsize // (2 if dtype.startswith("c") else 1)
    used, packed = codec.compress(codec.ZSTD | codec.SHUFFLE, data, item)
    assert used == codec.ZSTD | item << 8
    assert bytes(codec.decompress(used, packed, len(data))) == bytes(data)
    with pytest.raises(DataError):
        codec.decompress(used | 1 << 20, packed, len(data))
    with pytest.raises(DataError):
        codec.decompress(codec.LZ4 | item << 8, packed, len(data))


def test_the_probe_decides() -> None:
    smooth = codec.Sample(memoryview(SMOOTH.view(np.uint8)), 4)
    noise = codec.Sample(memoryview(NOISE), 4)
    shuffled = codec.ZSTD | codec.SHUFFLE
    assert codec.choose("zstd", [smooth], None, 2) == shuffled
    assert codec.choose("auto", [smooth], 1.0, 2) == shuffled
    assert codec.choose("auto", [smooth], 1e15, 2) == codec.RAW, "slower than the disk"
    assert codec.choose("auto", [smooth], None, 2) == codec.RAW, "nothing is known"
    assert codec.choose("auto", [noise], 1.0, 2) == codec.RAW
    assert codec.choose("zstd", [smooth._replace(item=0)], None, 2) == codec.ZSTD
    assert codec.choose("lz4", [smooth], None, 2) == codec.LZ4


def test_the_layout_knows_the_numbers_in_a_block() -> None:
    big = 1 << 20
    arrays = {
        "a": np.zeros(big, np.float64),
        "b": np.zeros(big, np.int32),
        "c": np.zeros(big, np.complex64),
        "small": np.zeros(3),
    }
    assert plan_layout(arrays).item_sizes() == [0, *[8] * 8, *[0] * 4, *[4] * 8]


@pytest.mark.parametrize("is_secret", [False, True])
def test_a_smooth_field_takes_less_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_secret: bool
) -> None:
    monkeypatch.setenv("KEY", "ab" * 32)
    encrypt = {"key_env": "KEY"} if is_secret else None
    arrays = {"x": np.tile(SMOOTH, 3), "n": NOISE, "odd": SMOOTH[:20001].astype(">f8")}
    with Checkpointer(tmp_path, compression="zstd", encrypt=encrypt) as ck:
        ck.save(0, arrays, None)
        ck.wait()
        saved = ck.restore()
    assert saved is not None
    assert all(np.array_equal(saved.arrays[name], arrays[name]) for name in arrays)
    plain = sum(
        len(codec.compress(codec.ZSTD, memoryview(a.view(np.uint8)))[1]) for a in arrays.values()
    )
    assert ck.commits[0].bytes_stored < 0.95 * plain
