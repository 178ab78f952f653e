"""The lease: the proof that this attempt, and no other, works on a shard.

Why two files. A lease file that is replaced at a takeover has a race: two processes find it stale
and both replace it. So the right to work is the attempt record `attempts/<n>.json`, created
exclusively; whoever creates number n+1 has it. `lease.json` beside it only carries the heartbeat.

1. Read the newest attempt record. Has it not ended, and is its holder alive (or can that not be
   told)? Then the shard is held.
2. Create the record of the next number. It existed? Somebody was faster: begin again.
3. Write `lease.json`; beat every 15 s.

A holder that slept through a takeover finds the record of the next number and ends; rows that it
wrote meanwhile carry a lower attempt number than those above them and do not count.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import psutil

from milepost.clock import epoch, utc_now
from milepost.durable import create_exclusive, read_json, write_json
from milepost.errors import DataError, Refused

HEARTBEAT_S = 15.0
LOOK_AGAIN_S = 1.0
STALE_S = 90.0
"""A holder on another host whose heart has not beaten for this long may be dead."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who works on a shard, and when it last said so."""

    attempt: int
    host: str
    pid: int
    process_start: float
    boot_id: str
    token: str
    heartbeat: str
    slurm_job_id: str | None = None

    def is_alive(self) -> bool | None:
        """True or False where it can be told; None for another host with an old heartbeat.

        On this host the process table decides: process id, start time and boot must agree. On
        another host a fresh heartbeat means alive; an old one needs the scheduler's word.
        """
        if self.host == socket.gethostname():
            return self.boot_id == boot_id() and is_running(self.pid, self.process_start)
        return True if self.age_s() < STALE_S else None

    def age_s(self) -> float:
        return time.time() - epoch(self.heartbeat)

    def describe(self) -> str:
        job = f", Slurm job {self.slurm_job_id}" if self.slurm_job_id else ""
        return (
            f"attempt {self.attempt} (process {self.pid} on {self.host}{job}, "
            f"heartbeat {self.age_s():.0f} s ago)"
        )


_IDENTITY = tuple(f.name for f in fields(Holder) if f.name != "heartbeat")


def boot_id() -> str:
    """Identity of this boot of this machine; tells a process id of before a reboot apart."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return str(psutil.boot_time())


def started(pid: int) -> float | None:
    """When the process with this id started, in seconds since the epoch; None when there is none.

    Zombies do not count: in a container without an init they stay for ever.
    """
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.NoSuchProcess:
        return None


def is_running(pid: int, process_start: float) -> bool:
    """Is the process with this id the one that started then?"""
    start = started(pid)
    return start is not None and abs(start - process_start) < 1.0


def read_holder(path: Path) -> Holder | None:
    """Who holds the shard whose `lease.json` is at `path`; None when nobody does.

    The newest attempt record decides, the lease file adds the heartbeat. A record that cannot be
    read is a DataError.
    """
    folder = path.parent
    number = newest_attempt(folder)
    if number == 0:
        return None
    record_path = folder / "attempts" / f"{number}.json"
    try:
        record = json.loads(record_path.read_text(encoding="utf-8"))
        if record["ended"] is not None:
            return None
        fields = {name: record[name] for name in _IDENTITY}
        return Holder(heartbeat=_heartbeat(path, record), **fields)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"is not an attempt record ({error!r})",
            where=record_path,
            fix="make sure that nothing works on this shard, then remove the file",
        ) from error


def _heartbeat(path: Path, record: Mapping[str, Any]) -> str:
    try:
        lease = read_json(path)
        if lease["token"] == record["token"]:
            return str(lease["heartbeat"])
    except (FileNotFoundError, DataError):
        pass  # between the two files of a takeover, or a torn lease: the start is the last sign
    return str(record["started"])


def newest_attempt(folder: Path) -> int:
    """The highest attempt number below `folder`; 0 when there was none."""
    return max((int(p.stem) for p in folder.glob("attempts/*.json") if p.stem.isdigit()), default=0)


def attempt_records(folder: Path) -> list[dict[str, Any]]:
    """The records of all attempts below `folder`, in their order."""
    numbers = sorted(int(p.stem) for p in folder.glob("attempts/*.json") if p.stem.isdigit())
    return [read_json(folder / "attempts" / f"{number}.json") for number in numbers]


def is_superseded(folder: Path, attempt: int) -> bool:
    """Has a later attempt begun? One look at one name, so it may be asked before each commit."""
    return (folder / "attempts" / f"{attempt + 1}.json").exists()


class Held(Refused):
    """Somebody else works on the shard."""

    def __init__(self, holder: Holder, path: Path) -> None:
        self.holder = holder
        super().__init__(
            f"the lease is held by {holder.describe()}",
            where=path,
            fix="wait for it, or end that process; its work is taken over at once then",
        )


class Lease:
    """Held between `acquire` and `release`; a thread keeps its heart beating.

    `may_take(holder)` is asked about a holder on another host, which cannot be looked at from
    here: the scheduler's word. By default a heart must have been silent for long.
    """

    def __init__(
        self,
        folder: Path,
        *,
        slurm_job_id: str | None = None,
        may_take: Callable[[Holder], bool] = lambda holder: holder.age_s() > 4 * STALE_S,
    ) -> None:
        self.folder = folder
        self.path = folder / "lease.json"
        self.holder: Holder | None = None
        self.taken_from: Holder | None = None
        self._slurm_job_id = slurm_job_id
        self._may_take = may_take
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.lost = threading.Event()

    @property
    def attempt(self) -> int:
        return self._held().attempt

    @property
    def token(self) -> str:
        return self._held().token

    def _held(self) -> Holder:
        if self.holder is None:
            raise Refused("the lease is not held", where=self.path)
        return self.holder

    def acquire(self) -> int:
        """Take the lease and return the attempt number; Held when somebody else has it."""
        while True:
            number = newest_attempt(self.folder) + 1
            previous = read_holder(self.path)
            if previous is not None and not self._is_free(previous):
                raise Held(previous, self.path)
            mine = self._myself(number)
            record = {k: v for k, v in asdict(mine).items() if k != "heartbeat"}
            record |= {"started": mine.heartbeat, "ended": None}
            path = self.folder / "attempts" / f"{number}.json"
            if create_exclusive(path, json.dumps(record, indent=2) + "\n"):
                break
            time.sleep(0.05 + 0.1 * secrets.randbelow(100) / 100)
        self.taken_from = previous
        write_json(self.path, asdict(mine))
        self.holder = mine
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._thread.start()
        return number

    def _is_free(self, previous: Holder) -> bool:
        if previous.host != socket.gethostname():
            return self._may_take(previous)
        return previous.is_alive() is False

    def _myself(self, number: int) -> Holder:
        return Holder(
            attempt=number,
            host=socket.gethostname(),
            pid=os.getpid(),
            process_start=psutil.Process().create_time(),
            boot_id=boot_id(),
            token=secrets.token_hex(16),
            heartbeat=utc_now(),
            slurm_job_id=self._slurm_job_id,
        )

    def check(self) -> None:
        """Raise Refused when another attempt has taken the lease over."""
        mine = self._held()
        if is_superseded(self.folder, mine.attempt):
            self.lost.set()
            now = read_holder(self.path)
            raise Refused(
                f"attempt {mine.attempt} lost the lease to "
                f"{now.describe() if now else 'a later attempt'}; it stops and writes nothing more",
                where=self.path,
            )

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_S):
            try:
                self.check()
            except Refused:
                return
            write_json(self.path, asdict(replace(self._held(), heartbeat=utc_now())))

    def release(self, **outcome: Any) -> None:
        """End the attempt: its record gets `outcome` and the time, the lease file goes."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        mine = self._held()
        superseded = is_superseded(self.folder, mine.attempt)
        update_attempt(
            self.folder / "attempts" / f"{mine.attempt}.json", **outcome, ended=utc_now()
        )
        if not superseded:
            self.path.unlink(missing_ok=True)
        self.holder = None


def acquire_when_free(
    lease: Lease, say: Callable[[str], None], pause: Callable[[], bool] | None = None
) -> bool:
    """Acquire, waiting for whoever holds the lease and saying who it is.

    `pause` waits a moment between two looks and returns False to give up; then the result is
    False. By default it sleeps and never gives up.
    """
    said = ""
    while True:
        try:
            lease.acquire()
            return True
        except Held as held:
            if said != held.holder.token:
                said = held.holder.token
                say(f"the lease is held by {held.holder.describe()}; waiting for it to end")
            if not (pause or _sleep)():
                return False


def _sleep() -> bool:
    time.sleep(LOOK_AGAIN_S)
    return True


def update_attempt(path: Path, **fields: Any) -> None:
    """Add to an attempt's record; only the holder of that attempt does so."""
    record = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, record | fields)
