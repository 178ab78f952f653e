"""What became of the attempts of a run: alive, dead, and kept for a minute where they are many."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from milepost.clock import epoch, iso
from milepost.durable import read_json, write_json
from milepost.lease import Holder, boot_id
from milepost.paths import RunPaths
from milepost.runner import observed
from milepost.runner.observed import attempts_of_run, attempts_of_shard, note_last_sign

NOW = 1772359200.0


def who(number: int, pid: int | None = None) -> dict[str, Any]:
    """A record of an attempt of this very process, or of one that is gone."""
    me = psutil.Process()
    return {
        "attempt": number,
        "host": socket.gethostname(),
        "pid": me.pid if pid is None else pid,
        "process_start": me.create_time() if pid is None else 1.0,
        "boot_id": boot_id(),
        "token": f"token {number}",
        "slurm_job_id": None,
        "started": iso(NOW),
        "ended": None,
    }


GONE = 999_999_999


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths("walk", tmp_path)


def test_an_ended_attempt_is_as_it_said(paths: RunPaths) -> None:
    finding = {"class": "data", "subclass": "x", "action": "fix_no_retry", "evidence": ["long"]}
    record = who(1) | {"ended": iso(NOW + 9), "stop": "failed", "finding": finding}
    write_json(paths.shard("0001").attempt(1), record)
    (found,) = attempts_of_run(paths)
    assert (found["ended"], found["stop"]) == (iso(NOW + 9), "failed")
    assert found["finding"] == {"action": "fix_no_retry", "subclass": "x"}
    assert "last_sign" not in found and "token" not in found


def test_one_at_work_is_marked_and_a_dead_one_is_not(paths: RunPaths) -> None:
    for name, pid in (("0001", None), ("0002", GONE)):
        shard = paths.shard(name)
        write_json(shard.attempt(1), who(1, pid))
        write_json(shard.lease, who(1, pid) | {"heartbeat": iso(NOW + 30)})
    alive, dead = attempts_of_run(paths)
    assert alive["running"] is True and "running" not in dead
    assert alive["last_sign"] == dead["last_sign"] == iso(NOW + 30)


def test_the_last_sign_of_a_dead_one_is_the_latest_of_its_traces(paths: RunPaths) -> None:
    shard = paths.shard("0001")
    write_json(shard.attempt(1), who(1, GONE))
    dead = Holder(1, "elsewhere", GONE, 1.0, "b", "token 1", iso(NOW + 30))
    for path, second in ((shard.log(1), 20), (shard.journal, 40)):
        path.write_text("x")
        os.utime(path, (NOW + second, NOW + second))
    note_last_sign(shard, dead)
    assert read_json(shard.attempt(1))["last_sign"] == iso(NOW + 40)
    os.utime(shard.journal, (NOW + 99, NOW + 99))  # its successor writes: no sign of its own
    note_last_sign(shard, dead)
    (found,) = attempts_of_shard(shard)
    assert epoch(found["last_sign"]) == NOW + 40


def test_a_later_attempts_journal_is_no_sign_of_an_earlier_one(paths: RunPaths) -> None:
    shard = paths.shard("0001")
    write_json(shard.attempt(1), who(1, GONE))
    write_json(shard.attempt(2), who(2, GONE) | {"ended": iso(NOW + 50), "stop": "done"})
    shard.journal.write_text("x")
    shard.log(1).write_text("x")
    os.utime(shard.log(1), (NOW + 7, NOW + 7))
    first, _ = attempts_of_shard(shard)
    assert first["last_sign"] == iso(NOW + 7)


def test_what_slurm_said_about_it_is_taken_along(paths: RunPaths) -> None:
    shard = paths.shard("0001")
    write_json(shard.attempt(1), who(1, GONE) | {"slurm_job_id": "7"})
    said = {"stop": "Slurm says PREEMPTED", "finding": {"action": "x", "subclass": "preempted"}}
    write_json(shard.attempts / "1.slurm.json", said)
    (found,) = attempts_of_run(paths)
    assert (found["stop"], found["finding"]["subclass"]) == ("Slurm says PREEMPTED", "preempted")


def test_many_shards_are_read_once_a_minute_and_ones_own_always(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{n:04d}" for n in range(1, observed.FEW + 3)]
    for name in names:
        record = who(1, GONE) | {"ended": iso(NOW), "stop": "done"}
        write_json(paths.shard(name).attempt(1), record)
    assert len(attempts_of_run(paths)) == len(names)
    kept = paths.work / "observed.json"
    assert kept.exists()
    for name in ("0001", "0002"):
        record = who(2, GONE) | {"ended": iso(NOW), "stop": "done"}
        write_json(paths.shard(name).attempt(2), record)
    assert len(attempts_of_run(paths)) == len(names)
    assert len(attempts_of_run(paths, "0002")) == len(names) + 1
    old = NOW - 3600
    os.utime(kept, (old, old))
    assert len(attempts_of_run(paths)) == len(names) + 2
    kept.write_text("torn")
    assert len(attempts_of_run(paths)) == len(names) + 2


def test_a_heart_elsewhere_that_is_silent_for_long_has_stopped(paths: RunPaths) -> None:
    """Its job may wait for hours before a successor says so."""
    for name, age_s in (("0001", 20.0), ("0002", 900.0)):
        shard = paths.shard(name)
        record = who(1) | {"host": "elsewhere.example"}
        write_json(shard.attempt(1), record)
        write_json(shard.lease, record | {"heartbeat": iso(time.time() - age_s)})
    fresh, silent = attempts_of_run(paths)
    assert fresh["running"] is True and "running" not in silent


def test_a_damaged_record_of_another_shard_is_left_out(paths: RunPaths) -> None:
    paths.shard("0001").attempts.mkdir(parents=True)
    paths.shard("0001").attempt(1).write_text("{")
    write_json(paths.shard("0002").attempt(1), who(1, GONE))
    assert [one["attempt"] for one in attempts_of_run(paths, "0002")] == [1]


def test_a_run_without_shards_has_no_attempts(paths: RunPaths) -> None:
    assert attempts_of_run(paths) == []
