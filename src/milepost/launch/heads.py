"""Heads: the Snakemake processes that drive a folder, and what one that was killed leaves behind.

Snakemake locks its folder and cannot tell a lock of a living head from that of a dead one, so
after a kill the user must unlock by hand. Each head of milepost writes a record of itself before
it locks. A new head removes a lock only when records of dead heads explain it and no other head
is alive or may be: a head on another machine cannot be looked at, so its lock stays.

Two heads that start at the same moment see each other's record and leave the lock alone.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
from pathlib import Path

import psutil

from milepost.durable import write_json
from milepost.lease import boot_id, is_running

HEADS = Path("work/heads")
LOCKS = Path(".snakemake/locks")


def enter_head(heads: Path = HEADS, locks: Path = LOCKS) -> list[str]:
    """Record this process as a head; remove the locks of dead ones. Notes for the user."""
    mine = heads / f"{socket.gethostname()}-{os.getpid()}.json"
    write_json(
        mine,
        {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "process_start": psutil.Process().create_time(),
            "boot_id": boot_id(),
        },
    )
    atexit.register(mine.unlink, missing_ok=True)
    dead, alive = [], []
    for path in heads.glob("*.json"):
        if path != mine:
            (dead if _is_dead(path) else alive).append(path)
    notes = []
    if dead and not alive:
        stale = list(locks.glob("*.lock"))
        for lock in stale:
            lock.unlink(missing_ok=True)
        if stale:
            notes.append(f"milepost: removed the lock of a head that was killed ({dead[0].stem})")
    for path in dead:
        path.unlink(missing_ok=True)
    return notes


def _is_dead(path: Path) -> bool:
    """Certainly dead: on this machine, and not in its process table."""
    try:
        head = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return True  # it ended just now, or was killed while it wrote
    if head["host"] != socket.gethostname():
        return False
    return head["boot_id"] != boot_id() or not is_running(head["pid"], head["process_start"])
