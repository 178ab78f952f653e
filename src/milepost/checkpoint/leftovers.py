"""Temporary folders of attempts that died while they wrote a generation, and their meetings."""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from pathlib import Path

from milepost.checkpoint.ranks_files import MEETING_PREFIX, is_deserted
from milepost.lease import started

_NAME = re.compile(r"\.draft-a(\d+)-(.+)-(\d+)-[^-]*")
DAMAGED_PREFIX = ".damaged-"
_FOREIGN_AGE_S = 86400.0


def prefix(attempt: int) -> str:
    """Start of a temporary folder's name: who writes it, so that others can tell if he lives."""
    return f".draft-a{attempt}-{socket.gethostname()}-{os.getpid()}-"


def remove(folder: Path, attempt: int) -> list[str]:
    """Remove the temporary folders in `folder` whose writers are dead or superseded.

    A folder of an older attempt goes; of this host, when its process is gone; of another host
    and the same attempt, when it is older than a day. Returns the names.
    """
    try:
        entries = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    gone = [name for name in entries if _is_dead(folder / name, attempt)]
    for name in gone:
        shutil.rmtree(folder / name, ignore_errors=True)
    return gone


def remove_damaged(folder: Path) -> tuple[str, ...]:
    """Remove the damaged generations that another tier replaced; returns the names."""
    gone = tuple(sorted(path.name for path in folder.glob(f"{DAMAGED_PREFIX}*")))
    for name in gone:
        shutil.rmtree(folder / name, ignore_errors=True)
    return gone


def _is_dead(path: Path, attempt: int) -> bool:
    if path.name.startswith(MEETING_PREFIX):
        return is_deserted(path, _FOREIGN_AGE_S)
    match = _NAME.fullmatch(path.name)
    if match is None:
        return False
    if int(match[1]) < attempt:
        return True
    if match[2] == socket.gethostname():
        return started(int(match[3])) is None
    try:
        return time.time() - path.stat().st_mtime > _FOREIGN_AGE_S
    except FileNotFoundError:
        return False
