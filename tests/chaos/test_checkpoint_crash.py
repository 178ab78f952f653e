"""Checkpoints under attack: killed at every step, flipped bits, full disks, wrong keys."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.crypt import Tampered, WrongKey, load_key
from milepost.checkpoint.manifest import MANIFEST, OK
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.verify import verify_generation
from milepost.errors import DataError, StorageError

pytestmark = pytest.mark.chaos
STEPS = (
    "staged",
    "begun",
    "copied",
    "file-durable",
    "told",
    "data-durable",
    "manifest-durable",
    "ok-durable",
    "before-rename",
    "renamed",
    "committed",
    "unflagged",
)
"""Of a save: from the copy of the state to the rotation behind the commit."""

SOLVER = textwrap.dedent(
    """
    import os, signal, sys
    import numpy as np
    from milepost import Checkpointer

    folder, die_at, die_in = sys.argv[1], sys.argv[2], int(sys.argv[3])
    seen = 0

    def hook(step):
        global seen
        seen += step == die_at
        if step == die_at and seen == die_in:
            os.kill(os.getpid(), signal.SIGKILL)

    with Checkpointer(folder, interval_s=0, hook=hook, delta=True, rotation=2) as ck:
        saved = ck.restore()
        rng = np.random.default_rng(5)
        x, start = np.zeros(300_000), 0
        if saved is not None:
            x, start = saved.arrays["x"], saved.step + 1
            rng.bit_generator.state = saved.meta["rng"]
        for step in range(start, 6):
            x[rng.integers(0, 1000, 10)] += rng.standard_normal(10)
            ck.save(step, {"x": x}, {"rng": rng.bit_generator.state})
            ck.wait()
    print(start, x.sum().hex())
    """
)


def solve(folder: Path, die_at: str = "-", die_in: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SOLVER, str(folder), die_at, str(die_in)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    done = solve(tmp_path_factory.mktemp("undisturbed"))
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[1]


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_of_a_commit(tmp_path: Path, step: str, undisturbed: str) -> None:
    # The first rotation that has something to delete is that behind the fourth commit.
    killed = solve(tmp_path, step, 1 if step == "unflagged" else 4)
    assert killed.returncode == -signal.SIGKILL
    store = CheckpointStore(tmp_path)
    is_new = step in ("renamed", "committed", "unflagged")
    assert store.generations()[0] == ("000004-a0" if is_new else "000003-a0")
    assert all(not verify_generation(store, name) for name in store.generations())
    resumed = solve(tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    start, result = resumed.stdout.split()
    assert int(start) == (4 if is_new else 3), "at most the step that was being saved is lost"
    assert result == undisturbed
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".draft")]
    assert store.names() == store.generations(), "a rotation that was cut short was finished"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four generations; the last three are deltas of the first."""
    folder = tmp_path / "ckpt"
    x = np.random.default_rng(1).standard_normal(400_000)
    with Checkpointer(folder, rotation=4) as ck:
        for step in range(4):
            x[:100] += 1
            ck.save(step, {"x": x, "n": np.array(step)}, {"step": step})
            ck.wait()
    return folder


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["rank_0.bin", MANIFEST, OK])
@pytest.mark.parametrize("part", [0.0, 0.5, 0.999])
def test_a_flipped_bit_is_found_and_an_older_one_taken(
    folder: Path, name: str, part: float
) -> None:
    path = folder / "000004-a0" / name
    flip(path, int(path.stat().st_size * part))
    damages = verify_generation(CheckpointStore(folder), "000004-a0")
    assert damages
    assert any(str(path.parent) in damage.where for damage in damages)
    with Checkpointer(folder) as ck:
        saved = ck.restore()
    assert saved is not None
    assert int(saved.arrays["n"]) == saved.step, "whatever is taken is right"
    assert saved.step in (2, 3)
    if saved.step == 2:
        assert saved.damages
        assert saved.lost.steps in (1, None)


def test_the_damaged_block_is_named(folder: Path) -> None:
    flip(folder / "000004-a0" / "rank_0.bin", 4096 + 700)
    (damage,) = verify_generation(CheckpointStore(folder), "000004-a0")
    assert "block 0 is damaged (bytes 4096 to" in damage.what
    assert damage.where.endswith("000004-a0/rank_0.bin")


def test_a_damaged_base_takes_its_deltas_with_it(folder: Path) -> None:
    flip(folder / "000001-a0" / "rank_0.bin", 4096 + (2 << 20))
    with (
        pytest.raises(DataError, match="no generation can be restored") as caught,
        Checkpointer(folder) as ck,
    ):
        ck.restore()
    assert "000001-a0" in str(caught.value)
    assert str(caught.value).count("block") >= 4


@pytest.mark.parametrize("name", [OK, MANIFEST, "rank_0.bin"])
def test_a_missing_file(folder: Path, name: str) -> None:
    (folder / "000004-a0" / name).unlink()
    with Checkpointer(folder) as ck:
        saved = ck.restore()
    assert saved is not None
    assert saved.step == 2
    assert "missing" in saved.damages[0]
    assert CheckpointStore(folder).begin().name == "000005-a0", "its name is not used again"


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    path = folder / "000004-a0" / "rank_0.bin"
    shutil.move(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with Checkpointer(folder) as ck:
        saved = ck.restore()
    assert saved is not None
    assert saved.step == 2
    assert "link" in saved.damages[0]


def test_a_truncated_file(folder: Path) -> None:
    path = folder / "000004-a0" / "rank_0.bin"
    os.truncate(path, path.stat().st_size - 4096)
    (damage,) = verify_generation(CheckpointStore(folder), "000004-a0", deep=False)
    assert "the manifest says" in damage.what


def test_a_generation_that_crashes_the_application_twice(folder: Path) -> None:
    """A killed process leaves the count of its restore behind; a clean end takes it back."""
    for _ in range(2):
        ck = Checkpointer(folder)
        saved = ck.restore()
        assert saved is not None
        assert saved.generation == "000004-a0"
    with Checkpointer(folder) as ck:
        saved = ck.restore()
        assert saved is not None
        assert saved.generation == "000003-a0"
        assert "quarantine" in saved.damages[0]
        ck.save(saved.step + 1, saved.arrays, saved.meta)
    assert CheckpointStore(folder).restore_counts() == {"000004-a0": 2}
    assert CheckpointStore(folder).generations()[0] == "000005-a0"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0 and not os.environ.get("CI"):
        pytest.skip(f"mounting a small file system is not permitted: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    yield folder
    subprocess.run(["umount", str(folder)], timeout=20, check=True)


def test_a_full_disk_stops_the_process_and_harms_nothing(small_disk: Path) -> None:
    folder = small_disk / "ckpt"
    rng = np.random.default_rng(1)
    with (
        pytest.raises(StorageError, match="is full"),
        Checkpointer(folder, compression="none") as ck,
    ):
        for step in range(5):
            ck.save(step, {"x": rng.standard_normal(1_600_000)}, {})
            ck.wait()
    assert not list(folder.glob(".draft*")), "what did not fit was removed"
    with Checkpointer(folder) as ck:
        saved = ck.restore()
    assert saved is not None
    assert saved.step == 0, "the newest is never pruned for the sake of the next"
    assert not verify_generation(CheckpointStore(folder), saved.generation)


def key_file(path: Path, seed: int) -> dict[str, str]:
    path.write_text(bytes([seed] * 32).hex())
    path.chmod(0o600)
    return {"key_file": str(path)}


def test_wrong_key_tampering_and_damage_are_told_apart(tmp_path: Path) -> None:
    from milepost.checkpoint.blocks import block_digest

    folder, right = tmp_path / "ckpt", key_file(tmp_path / "right", 1)
    with Checkpointer(folder, encrypt=right) as ck:
        ck.save(0, {"x": np.arange(10.0)}, {"secret": "rosebud"})
    path = folder / "000001-a0" / "rank_0.bin"
    assert b"rosebud" not in path.read_bytes()
    with pytest.raises(WrongKey, match="the key given is"):
        Checkpointer(folder, encrypt=key_file(tmp_path / "wrong", 2)).restore()
    with pytest.raises(WrongKey, match="no key is given"):
        Checkpointer(folder).restore()
    good = path.read_bytes()
    flip(path, 4096 + 20)
    with pytest.raises(DataError, match="block 0 is damaged") as damaged:
        Checkpointer(folder, encrypt=right).restore()
    assert type(damaged.value) is DataError
    assert "authentic" not in str(damaged.value), "nobody is accused of a bad disk"
    (damage,) = verify_generation(CheckpointStore(folder), "000001-a0", key=load_key(right))
    assert "block 0 is damaged" in damage.what
    # An attacker who mends every digest but has no key: the tail, its digest in the last bytes.
    data = bytearray(good)
    start = int.from_bytes(data[-72:-64], "little")
    size = int.from_bytes(data[-64:-56], "little")
    data[start + 5] ^= 1
    data[-48:-16] = block_digest(bytes(data[start : start + size]))
    path.write_bytes(data)
    with pytest.raises(Tampered, match="not authentic"):
        Checkpointer(folder, encrypt=right).restore()
    key = load_key(right)
    assert verify_generation(CheckpointStore(folder), "000001-a0", key=key)
