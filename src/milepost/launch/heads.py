"""Heads: the Snakemake processes that drive a folder, and what one that was killed leaves behind.

Snakemake locks its folder and marks the outputs of running jobs as incomplete; after a kill the
user must unlock by hand and confirm that outputs are made again. Here neither is needed: outputs
appear complete or not at all, so one that exists is complete, and a lock whose head is dead
protects nothing.

Each head writes a record of itself before it locks. A new head tidies up only when no other head
is alive or may be (a head on another machine cannot be looked at), and removes a lock only when
the record of a dead head explains it. Two heads that start at once see each other's record and
leave all as it is.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import psutil

from milepost.durable import write_json
from milepost.lease import boot_id, is_running

HEADS = Path("work/heads")
SNAKEMAKE = Path(".snakemake")
_LOOKS = frozenset(
    [
        "--dry-run",
        "--dryrun",
        "--lint",
        "--list",
        "--list-rules",
        "-l",
        "--list-target-rules",
        "--lt",
        "--summary",
        "-S",
        "-D",
        "--detailed-summary",
        "--dag",
        "--rulegraph",
        "--filegraph",
        "--d3dag",
        "--unlock",
        "--report",
        "--touch",
        "-t",
        "--cleanup-metadata",
        "--cm",
        "--list-changes",
        "--lc",
        "--archive",
        "--delete-all-output",
        "--delete-temp-output",
        "--generate-unit-tests",
        "--print-compilation",
    ]
)


def enter_head(heads: Path = HEADS, snakemake: Path = SNAKEMAKE) -> list[str]:
    """Record this process as a head; tidy up after dead ones. Notes for the user."""
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
    dead: list[Path] = []
    alive: list[Path] = []
    for path in heads.glob("*.json"):
        if path != mine:
            (dead if _is_dead(path) else alive).append(path)
    notes = []
    if not alive:
        for mark in _marks_of_existing_outputs(snakemake / "incomplete"):
            mark.unlink(missing_ok=True)
    if dead and not alive:
        locks = list((snakemake / "locks").glob("*.lock"))
        for lock in locks:
            lock.unlink(missing_ok=True)
        if locks:
            notes.append(f"milepost: removed the lock of a head that was killed ({dead[0].stem})")
    for path in dead:
        path.unlink(missing_ok=True)
    return notes


def only_looks(argv: Sequence[str]) -> bool:
    """Does this call of Snakemake only show or tidy something, without running jobs?"""
    return any(
        word in _LOOKS or (word.startswith("-n") and not word.startswith("--")) for word in argv
    )


def _marks_of_existing_outputs(folder: Path) -> list[Path]:
    """Marks of incomplete outputs that exist; a mark's name is the output's path in base64.

    The mark of an output that is not there stays: it may carry the id of a job that still runs.
    """
    marks = []
    for mark in folder.rglob("*"):
        if mark.is_file():
            encoded = "".join(part.removeprefix("@") for part in mark.relative_to(folder).parts)
            try:
                output = Path(base64.urlsafe_b64decode(encoded).decode())
            except ValueError:
                continue  # not a mark of this format: leave it alone
            if output.exists():
                marks.append(mark)
    return marks


def _is_dead(path: Path) -> bool:
    """Certainly dead: on this machine, and not in its process table."""
    try:
        head = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return True  # it ended just now, or was killed while it wrote
    if head["host"] != socket.gethostname():
        return False
    return head["boot_id"] != boot_id() or not is_running(head["pid"], head["process_start"])
