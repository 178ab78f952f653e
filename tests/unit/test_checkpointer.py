"""Checkpointer: when it saves, how it stops, what it hands back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.manifest import Output
from milepost.checkpoint.store import CheckpointStore
from milepost.errors import ConfigError, DataError, Refused, StorageError


def state(x: float = 1.0) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"x": np.full(10, x)}, {"x": x}


def never() -> tuple[dict[str, Any], Any]:
    raise AssertionError("the state is not asked for when nothing is due")


def test_nothing_is_restored_from_nothing(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "c") as ck:
        assert ck.restore() is None


def test_a_restored_state_continues_bit_by_bit(tmp_path: Path) -> None:
    def run(folder: Path, stops: list[int]) -> np.ndarray[Any, Any]:
        x, rng = np.zeros(50), np.random.Generator(np.random.MT19937(7))
        for stop in [*stops, 30]:
            with Checkpointer(folder, interval_s=0) as ck:
                saved = ck.restore()
                start = 0
                if saved is not None:
                    arrays, meta, step = saved
                    x, start = arrays["x"], step + 1
                    rng = np.random.Generator(np.random.MT19937())
                    rng.bit_generator.state = meta["rng"]
                for step in range(start, stop):
                    x += rng.standard_normal(50)
                    ck.save(step, {"x": x}, {"rng": rng.bit_generator.state})
        return x

    assert np.array_equal(run(tmp_path / "a", []), run(tmp_path / "b", [3, 4, 17]))


def test_step_does_not_ask_for_the_state_before_it_is_due(tmp_path: Path) -> None:
    with Checkpointer(tmp_path, interval_s=3600) as ck:
        assert [ck.step(n, never) for n in range(3)] == [False] * 3
    assert CheckpointStore(tmp_path).generations() == []


def test_step_saves_when_due_and_what_was_copied_does_not_change(tmp_path: Path) -> None:
    x = np.zeros(1_000_000)
    with Checkpointer(tmp_path, interval_s=0) as ck:
        for step in range(5):
            x += 1
            assert ck.step(step, lambda: ({"x": x}, None))  # noqa: B023
            x += 0.5
            ck.wait()
            x -= 0.5
        saved = ck.restore()
    assert saved is not None
    assert saved.step == 4
    assert np.all(saved.arrays["x"] == 5)


def test_a_due_save_waits_while_another_is_under_way(tmp_path: Path) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hook(step: str) -> None:
        if step == "data-durable":
            reached.set()
            assert go_on.wait(10)

    with Checkpointer(tmp_path, interval_s=0, hook=hook) as ck:
        assert ck.step(0, state)
        assert reached.wait(10)
        assert not ck.step(1, never), "the application is not held up by a slow disk"
        go_on.set()
        ck.wait()
    assert len(ck.commits) == 1


@pytest.mark.parametrize("name", ["TERM", "USR1", "USR2", "URG", "INT"])
def test_a_signal_saves_once_and_ends_with_75(tmp_path: Path, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as stop, Checkpointer(tmp_path, interval_s=3600) as ck:
        assert not ck.stopping
        os.kill(os.getpid(), number)
        assert ck.stopping
        assert ck.stop_reason == f"signal {name}"
        assert ck.step(7, state)
        assert not ck.step(8, never)
    assert stop.value.code == 75
    assert signal.getsignal(number) is before
    (generation,) = CheckpointStore(tmp_path).generations()
    assert CheckpointStore(tmp_path).manifest(generation).step == 7


def test_a_finished_process_does_not_end_with_75(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as ck:
        os.kill(os.getpid(), signal.SIGTERM)
        ck.step(1, state)
        ck.finish()


def test_an_exception_is_not_hidden_by_the_stop(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Checkpointer(tmp_path):
        os.kill(os.getpid(), signal.SIGTERM)
        _ = 1 / 0


def test_it_saves_before_the_deadline_and_stops(tmp_path: Path) -> None:
    with (
        pytest.raises(SystemExit) as stop,
        Checkpointer(
            tmp_path, interval_s=3600, deadline=time.time() + 30, deadline_margin_s=60
        ) as ck,
    ):
        assert ck.step(3, state)
        assert ck.stop_reason == "walltime"
    assert stop.value.code == 75


def test_a_deadline_far_away_does_not_stop(tmp_path: Path) -> None:
    with Checkpointer(tmp_path, interval_s=3600, deadline=time.time() + 9000) as ck:
        assert not ck.step(3, never)
        assert not ck.stopping


def test_a_failure_in_the_background_surfaces_at_the_next_step(tmp_path: Path) -> None:
    def hook(step: str) -> None:
        if step == "manifest-durable":
            raise OSError(5, "sick disk")

    ck = Checkpointer(tmp_path, interval_s=0, hook=hook)
    ck.save(0, *state())
    with pytest.raises(OSError, match="sick disk"):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            ck.step(1, state)
    assert list(tmp_path.glob(".draft*")) == []


def test_a_process_whose_last_checkpoint_failed_does_not_end_well(tmp_path: Path) -> None:
    def hook(step: str) -> None:
        if step == "before-rename":
            raise StorageError("the disk is gone")

    with pytest.raises(StorageError, match="gone"), Checkpointer(tmp_path, hook=hook) as ck:
        ck.save(0, *state())
        sys.exit(0)


def test_an_application_error_tells_of_the_failed_checkpoint_too(tmp_path: Path) -> None:
    def hook(step: str) -> None:
        raise StorageError("the disk is gone")

    with pytest.raises(ZeroDivisionError) as caught, Checkpointer(tmp_path) as ck:
        ck.save(0, *state())
        ck.wait()
        ck._store.hook = lambda step: hook(step) if step == "data-durable" else None
        ck.save(1, *state())
        _ = 1 / 0
    assert "the disk is gone" in caught.value.__notes__[0]


def test_a_superseded_attempt_never_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILEPOST_LEASE", str(tmp_path / "lease.json"))
    monkeypatch.setenv("MILEPOST_ATTEMPT", "1")
    (tmp_path / "attempts").mkdir()
    (tmp_path / "attempts" / "1.json").write_text("{}")

    def hook(step: str) -> None:
        if step == "data-durable" and is_late:
            (tmp_path / "attempts" / "2.json").write_text("{}")

    is_late = False
    folder = tmp_path / "ckpt"
    with pytest.raises(Refused, match="superseded"), Checkpointer(folder, hook=hook) as ck:
        ck.save(0, *state())
        ck.wait()
        is_late = True
        ck.save(1, *state())
    assert CheckpointStore(folder).names() == ["000001-a1"]
    with pytest.raises(Refused, match="superseded"):
        Checkpointer(folder).save(2, *state())


def test_the_manifest_says_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEPOST_CONTAINER", "sha256:abc")
    monkeypatch.setenv("MILEPOST_ATTEMPT", "3")
    with Checkpointer(tmp_path, solver={"dt": 0.1}) as ck:
        ck.save(
            5,
            {"x": np.arange(4)},
            {"rng": np.random.default_rng(1).bit_generator.state},
            outputs=[Output("traj.xtc", 1000, 990)],
            control={"metric": "energy", "value": -1.5},
        )
    manifest = CheckpointStore(tmp_path).manifest("000001-a3")
    assert manifest.environment.container == "sha256:abc"
    assert manifest.attempt == 3
    assert manifest.solver == {"dt": 0.1}
    assert manifest.outputs == (Output("traj.xtc", 1000, 990),)
    assert manifest.control == {"metric": "energy", "value": -1.5}
    assert manifest.rng["bit_generator"] == "PCG64"
    assert manifest.metrics.bytes_logical == 32
    assert manifest.metrics.blocked_s is not None
    assert manifest.metrics.durable_s is not None
    assert os.uname().nodename not in (tmp_path / "000001-a3" / "ckpt.manifest.json").read_text()


@pytest.mark.parametrize("name", ["CONTAINER", "GPU_PROFILE", "CODE"])
def test_another_environment_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(f"MILEPOST_{name}", "one")
    with Checkpointer(tmp_path) as ck:
        ck.save(0, *state())
    monkeypatch.setenv(f"MILEPOST_{name}", "two")
    with pytest.raises(Refused, match=f"{name.lower()} was one and is two"):
        Checkpointer(tmp_path).restore()
    monkeypatch.delenv(f"MILEPOST_{name}")
    with pytest.raises(Refused, match="is not known") as caught:
        Checkpointer(tmp_path).restore()
    assert f"Checkpointer(allow=['{name.lower()}'])" in str(caught.value.fix)
    monkeypatch.setenv("MILEPOST_CKPT", json.dumps({"folder": str(tmp_path)}))
    with pytest.raises(Refused) as caught:
        Checkpointer.from_env().restore()
    assert f"checkpoint.allow: [{name.lower()}]" in str(caught.value.fix), "as the config says it"
    assert Checkpointer(tmp_path, allow=[name.lower()]).restore() is not None


def test_rotation_keeps_the_newest(tmp_path: Path) -> None:
    with Checkpointer(tmp_path, rotation=2, delta=False, gold_every=4) as ck:
        for step in range(7):
            ck.save(step, *state(step))
    names = CheckpointStore(tmp_path).generations()
    assert names == ["000007-a0", "000006-a0", "000004-a0"]


def test_deltas_store_what_changed_and_keep_their_base(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal(1_000_000)
    with Checkpointer(tmp_path, rotation=1) as ck:
        for step in range(5):
            x[step] = step
            ck.save(step, {"x": x}, None)
            ck.wait()
        saved = ck.restore()
    assert [c.bytes_stored < 1_200_000 for c in ck.commits] == [False, True, True, True, True]
    assert CheckpointStore(tmp_path).generations() == ["000005-a0", "000001-a0"]
    assert saved is not None
    assert np.array_equal(saved.arrays["x"], x)


def test_the_number_of_bases_is_bounded(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal(20 * 131072)
    store = CheckpointStore(tmp_path)
    with Checkpointer(tmp_path, rotation=1) as ck:
        for step in range(20):
            x[step * 131072] += 1
            ck.save(step, {"x": x}, None)
            ck.wait()
            assert len(store.manifest(store.generations()[0]).bases) <= 8
        saved = ck.restore()
    assert saved is not None
    assert np.array_equal(saved.arrays["x"], x)
    fulls = [c for c in ck.commits if c.bytes_stored > x.nbytes]
    assert len(fulls) > 1


def test_from_env_takes_the_runners_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"folder": str(tmp_path / "c"), "interval_s": 7, "rotation": 5, "warm": None}
    monkeypatch.setenv("MILEPOST_CKPT", json.dumps(options))
    with Checkpointer.from_env(rotation=9, compression="lz4") as ck:
        assert (ck.options.interval_s, ck.options.rotation) == (7, 5)
        assert ck.options.compression == "lz4", "the runner did not say"
        assert ck.folder == tmp_path / "c"
    monkeypatch.setenv("MILEPOST_CKPT", json.dumps({**options, "intervall_s": 1}))
    with pytest.raises(ConfigError, match="did you mean 'interval_s'"):
        Checkpointer.from_env()
    monkeypatch.setenv("MILEPOST_CKPT", "{")
    with pytest.raises(ConfigError, match="not JSON"):
        Checkpointer.from_env()


def test_from_env_without_a_runner_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MILEPOST_CKPT", raising=False)
    monkeypatch.chdir(tmp_path)
    assert Checkpointer.from_env().folder == Path("checkpoints")
    assert "./checkpoints" in capsys.readouterr().err


def test_an_orphan_is_told_to_stop(tmp_path: Path) -> None:
    """The runner is killed; the solver saves and ends."""
    solver = textwrap.dedent(
        """
        import sys, time
        import numpy as np
        from milepost import Checkpointer
        with Checkpointer.from_env() as ck:
            print("ready", flush=True)
            for step in range(10**9):
                ck.step(step, lambda: ({"x": np.zeros(3)}, None))
                if ck.stopping:
                    break
                time.sleep(0.001)
        """
    )
    runner = textwrap.dedent(
        """
        import os, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
        child.stdout.readline()
        print(child.pid, flush=True)
        os.kill(os.getpid(), 9)
        """
    )
    options = json.dumps({"folder": str(tmp_path), "interval_s": 3600})
    done = subprocess.run(
        [sys.executable, "-c", runner, solver],
        env={**os.environ, "MILEPOST_CKPT": options},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    pid = int(done.stdout)
    end = time.monotonic() + 30
    while not CheckpointStore(tmp_path).generations() or Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    ck = Checkpointer(tmp_path)
    with pytest.raises(DataError, match=r"array 'x' has the dtype object"):
        ck.save(0, {"x": np.array([object()])}, None)
    with pytest.raises(DataError, match=r"meta\.a\.b is a set"):
        ck.save(0, {}, {"a": {"b": {1}}})
    with pytest.raises(DataError, match="masked"):
        ck.save(0, {"x": np.ma.masked_array([1], [True])}, None)
    ck.close()
    assert not list(tmp_path.glob(".draft*"))


def test_bad_options_are_named(tmp_path: Path) -> None:
    for options in ({"compression": "gzip"}, {"rotation": 0}, {"interval_s": -1}, {"allow": ["x"]}):
        with pytest.raises(ConfigError):
            Checkpointer(tmp_path, **options)


def test_prepared_memory_holds_the_first_save(tmp_path: Path) -> None:
    x = np.arange(500_000.0)
    with Checkpointer(tmp_path) as ck:
        ck.prepare({"x": x})
        ck.save(0, {"x": x}, None)
        saved = ck.restore() if ck.wait() else None
    assert saved is not None
    assert np.array_equal(saved.arrays["x"], x)


def test_the_first_save_does_not_wait_for_a_part_of_numpy_it_has_no_use_for(tmp_path: Path) -> None:
    script = (
        "import sys, numpy as np\n"
        "from milepost import Checkpointer\n"
        "with Checkpointer(sys.argv[1], interval_s=1e9) as ck:\n"
        "    ck.save(0, {'x': np.zeros(9)})\n"
        "print('numpy.ma' in sys.modules)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "ckpt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
