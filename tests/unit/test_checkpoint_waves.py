"""Saves through a staging memory that is smaller than the state."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.image import Image
from milepost.checkpoint.layout import plan_layout
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.verify import verify_generation
from milepost.checkpoint.waves import Waves
from milepost.errors import StorageError


def state() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    odd = np.zeros(150_001, [("a", "<f8"), ("b", "u1"), ("c", "<i4")])
    odd["a"], odd["b"] = rng.standard_normal(150_001), 7
    return {
        "x": rng.standard_normal((700, 1000)),
        "turned": rng.standard_normal((500, 400)).T,
        "strided": rng.standard_normal(600_000)[::3],
        "odd": odd,
        "when": np.arange(200_000).astype("datetime64[s]"),
        "text": np.array(["one", "three"] * 50_000),
        "big": np.arange(100_000, dtype=">f8"),
        "small": np.arange(7),
        "empty": np.zeros((0, 3)),
        "scalar": np.array(2.5),
    }


@pytest.mark.parametrize("limit_bytes", [1, 5 << 20, 8 << 20])
def test_the_waves_are_the_image_piece_by_piece(limit_bytes: int) -> None:
    arrays = state()
    layout = plan_layout(arrays)
    image = Image(layout.image_bytes)
    image.fill(layout, arrays)
    waves = Waves(limit_bytes)
    for buffer in waves._buffers:
        buffer.bytes[:] = 255
    waves.begin()
    copier = threading.Thread(target=waves.fill, args=(layout, arrays))
    copier.start()
    seen = []
    for window in waves.windows(layout):
        last = layout.blocks[window.blocks[-1]]
        end = last.offset + last.size
        end += -end % 4096
        assert window.view[: end - window.offset] == image.view[window.offset : end]
        seen += list(window.blocks)
    copier.join()
    assert seen == list(range(len(layout.blocks)))
    assert waves.capacity_bytes <= max(limit_bytes, 4 << 20)


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("is_secret", [False, True])
def test_a_state_larger_than_the_staging_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str, is_secret: bool
) -> None:
    monkeypatch.setenv("KEY", "ab" * 32)
    arrays, encrypt = state(), {"key_env": "KEY"} if is_secret else None
    with Checkpointer(tmp_path, staging_limit_mb=5, compression=compression, encrypt=encrypt) as ck:
        ck.prepare(arrays)
        for step in range(3):
            arrays["x"][step] += 1
            arrays["turned"][0, step] += 1
            ck.save(step, arrays, {"step": step})
            expected = {name: array.copy() for name, array in arrays.items()}
            arrays["x"] += 1 if step == 2 else 0
        ck.wait()
        assert ck._committer is not None
        assert ck._committer._image is None, "nothing is copied as a whole"
    saved = Checkpointer(tmp_path, encrypt=encrypt).restore()
    assert saved is not None
    for name, array in expected.items():
        assert saved.arrays[name].dtype == array.dtype
        assert np.array_equal(saved.arrays[name], array), name
    assert [one.bytes_stored < ck.commits[0].bytes_stored / 2 for one in ck.commits] == [
        False,
        True,
        True,
    ]
    store = CheckpointStore(tmp_path)
    assert not any(verify_generation(store, name) for name in store.generations())


def test_waves_and_one_copy_give_the_same_file(tmp_path: Path) -> None:
    data = []
    for limit_mb in (None, 5):
        folder = tmp_path / str(limit_mb)
        with Checkpointer(folder, staging_limit_mb=limit_mb, compression="none") as ck:
            ck.save(0, state(), None)
        data.append((folder / "000001-a0" / "rank_0.bin").read_bytes())
    assert data[0] == data[1]


def test_a_writer_that_fails_lets_the_application_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from milepost.checkpoint.direct import DirectWriter

    ck = Checkpointer(tmp_path, staging_limit_mb=5, compression="none")
    ck.save(0, state(), None)
    ck.wait()
    real = DirectWriter.write

    def fail(self: DirectWriter, view: memoryview, offset: int) -> None:
        if offset > 4 << 20:
            raise StorageError("the disk is gone")
        real(self, view, offset)

    changed = {name: array for name, array in state().items() if name != "small"}
    changed["x"] = changed["x"] + 1
    with monkeypatch.context() as patch:
        patch.setattr(DirectWriter, "write", fail)
        ck.save(1, {**changed, "more": np.random.default_rng(5).standard_normal(900_000)}, None)
        with pytest.raises(StorageError, match="gone"):
            ck.wait()
    ck.save(2, changed, None)
    ck.wait()
    saved = ck.restore()
    assert saved is not None
    assert saved.step == 2
    ck.close()
