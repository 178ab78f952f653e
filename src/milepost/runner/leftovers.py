"""Processes that an attempt left running on this machine.

They are known by the attempt's token in their environment, never by a bare process id.
"""

from __future__ import annotations

import signal
from pathlib import Path

import psutil

_GONE_WITHIN_S = 10.0


def end_leftovers(token: str) -> int:
    """End what carries the token; how many there were.

    What a task left behind could still write to artifacts that are verified already.
    """
    needle = f"MILEPOST_TOKEN={token}".encode()
    victims = []
    for process in psutil.process_iter():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if needle in environment.split(b"\0"):
            victims.append(process)
    for process in victims:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(victims, timeout=_GONE_WITHIN_S)
    return len(victims)
