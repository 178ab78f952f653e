"""The lease: one worker per shard, takeover of the dead, fencing of the late."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from milepost.durable import write_json
from milepost.errors import DataError, Refused
from milepost.lease import Held, Lease, is_superseded, newest_attempt, read_holder

HOLD = """
import sys, time
from pathlib import Path
from milepost.lease import Lease
lease = Lease(Path(sys.argv[1])); lease.acquire()
print(lease.attempt, flush=True)
time.sleep(600)
"""


def hold_elsewhere(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_held_lease_says_who_holds_it(tmp_path: Path) -> None:
    lease = Lease(tmp_path)
    assert lease.acquire() == 1
    with pytest.raises(Held, match=f"attempt 1 \\(process {os.getpid()} on "):
        Lease(tmp_path).acquire()
    lease.release()
    assert read_holder(tmp_path / "lease.json") is None
    assert Lease(tmp_path).acquire() == 2


def test_release_records_how_the_attempt_ended(tmp_path: Path) -> None:
    lease = Lease(tmp_path, slurm_job_id="17")
    lease.acquire()
    lease.release(stop="done", exit_code=0)
    record = json.loads((tmp_path / "attempts" / "1.json").read_text())
    assert record["stop"] == "done"
    assert record["slurm_job_id"] == "17"
    assert record["ended"].endswith("Z")
    assert not (tmp_path / "lease.json").exists()


def test_a_killed_holder_is_replaced_at_once(tmp_path: Path) -> None:
    process = hold_elsewhere(tmp_path)
    with pytest.raises(Held):
        Lease(tmp_path).acquire()
    process.send_signal(signal.SIGKILL)
    process.wait()
    lease = Lease(tmp_path)
    assert lease.acquire() == 2
    assert lease.taken_from is not None
    assert lease.taken_from.pid == process.pid
    lease.release()


def test_a_process_id_that_was_used_again_is_not_the_holder(tmp_path: Path) -> None:
    lease = Lease(tmp_path)
    lease.acquire()
    record = tmp_path / "attempts" / "1.json"
    write_json(record, json.loads(record.read_text()) | {"process_start": 1.0})
    holder = read_holder(tmp_path / "lease.json")
    assert holder is not None
    assert holder.is_alive() is False


def test_a_silent_holder_on_another_host_needs_a_word_from_the_scheduler(tmp_path: Path) -> None:
    lease = Lease(tmp_path)
    lease.acquire()
    record = tmp_path / "attempts" / "1.json"
    old = "2020-01-01T00:00:00.000Z"
    write_json(record, json.loads(record.read_text()) | {"host": "elsewhere", "started": old})
    (tmp_path / "lease.json").unlink()
    holder = read_holder(tmp_path / "lease.json")
    assert holder is not None
    assert holder.is_alive() is None
    with pytest.raises(Held):
        Lease(tmp_path, may_take=lambda holder: False).acquire()
    assert Lease(tmp_path, may_take=lambda holder: True).acquire() == 2


def test_a_holder_that_slept_through_a_takeover_is_fenced(tmp_path: Path) -> None:
    late = Lease(tmp_path)
    late.acquire()
    record = tmp_path / "attempts" / "1.json"
    write_json(record, json.loads(record.read_text()) | {"process_start": 1.0})
    Lease(tmp_path).acquire()
    assert is_superseded(tmp_path, 1)
    with pytest.raises(Refused, match="lost the lease to attempt 2"):
        late.check()
    late.release()
    holder = read_holder(tmp_path / "lease.json")
    assert holder is not None
    assert holder.attempt == 2
    assert (tmp_path / "lease.json").exists()


def test_of_many_that_try_at_once_one_gets_it(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)
    got: list[int] = []

    def attempt() -> None:
        lease = Lease(tmp_path)
        barrier.wait()
        with contextlib.suppress(Held):
            got.append(lease.acquire())

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [1]
    assert newest_attempt(tmp_path) == 1


def test_a_damaged_attempt_record_is_named(tmp_path: Path) -> None:
    Lease(tmp_path).acquire()
    (tmp_path / "attempts" / "1.json").write_text("{")
    with pytest.raises(DataError, match="is not an attempt record"):
        read_holder(tmp_path / "lease.json")
