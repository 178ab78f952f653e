"""A checkpoint on demand: from another process, with and without an end."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.request import FILE, force
from milepost.checkpoint.store import CheckpointStore
from milepost.checkpoint.verify import verify_generation
from milepost.errors import RESUMABLE, StorageError

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SOLVER = textwrap.dedent(
    """
    import sys, time
    import numpy as np
    from milepost import Checkpointer

    x = np.zeros(1000)
    with Checkpointer(sys.argv[1], interval_s=3600, rotation=9) as ck:
        ck.save(0, {"x": x})
        ck.wait()
        print("begun", flush=True)
        step = 0
        while not ck.stopping:
            time.sleep(0.002)
            step += 1
            x += 1
            ck.step(step, lambda: ({"x": x}, None))
    """
)


@pytest.fixture
def solver(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """An application that checkpoints only when it is asked to."""
    command = [sys.executable, "-c", SOLVER, str(tmp_path / "ckpt")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    yield process
    process.kill()
    process.wait(20)
    process.stdout.close()


def script(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPTS / name), *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_forced_and_it_goes_on_then_forced_and_it_ends(
    solver: subprocess.Popen[str], tmp_path: Path
) -> None:
    store = CheckpointStore(tmp_path / "ckpt")
    done = script("force_ckpt", str(store.folder), "--json", "--timeout", "30")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["generation"] == store.generations()[0] == "000002-a0"
    assert found["step"] > 0
    assert not verify_generation(store, "000002-a0")
    assert solver.poll() is None, "it goes on"
    done = script("force_ckpt", str(store.folder), "--stop", "--timeout", "30")
    assert done.stdout.startswith("000003-a0  step ")
    assert solver.wait(30) == RESUMABLE
    assert not (store.folder / FILE).exists()


def test_a_rolling_window(solver: subprocess.Popen[str], tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "ckpt")
    words = [str(store.folder), "--every", "0", "--keep", "2", "--count", "3"]
    done = script("rolling_ckpt", *words)
    assert done.returncode == 0, done.stderr
    kept = ["000004-a0", "000003-a0"]
    assert store.generations()[:2] == kept
    assert set(store.generations()[2:]) <= set(store.manifest(kept[0]).bases)
    assert "deleted 000002-a0" in done.stdout


@pytest.mark.parametrize("words", [[], ["a", "b"], ["a", "--keep", "0"], ["a", "--every", "x"]])
def test_a_rolling_window_that_is_misspelt(words: list[str]) -> None:
    done = script("rolling_ckpt", *words)
    assert done.returncode == 2
    assert "--every 600 --keep 3" in done.stderr


def test_nobody_is_there_to_answer(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as ck:
        ck.save(0, {"x": np.arange(3)})
    with pytest.raises(StorageError, match="no application took the request within 0 s"):
        force(CheckpointStore(tmp_path), timeout_s=0)
    assert not (tmp_path / FILE).exists(), "a later application is not surprised by it"


def test_a_request_that_was_taken_and_came_to_nothing(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as ck:
        ck.save(0, {"x": np.arange(3)})

    def take(seconds: float) -> None:
        (tmp_path / FILE).unlink(missing_ok=True)

    with pytest.raises(StorageError, match=r"no checkpoint was committed within 0\.2 s"):
        force(CheckpointStore(tmp_path), timeout_s=0.2, sleep=take)
