"""The processes of the other ranks: is one of them, on this host, gone?"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from typing import Any

from milepost.lease import boot_id, is_running


def introduce() -> dict[str, Any]:
    """What a rank tells the others of its process: a number of chance, host, boot, process."""
    import psutil

    return {
        "nonce": secrets.token_hex(8),
        "host": socket.gethostname(),
        "boot": boot_id(),
        "pid": os.getpid(),
        "start": psutil.Process().create_time(),
    }


def is_near(hello: Mapping[str, Any]) -> bool:
    """Does this rank's process number mean something here?"""
    return bool(hello["host"] == socket.gethostname() and hello["boot"] == boot_id())


def is_dead(hello: Mapping[str, Any]) -> bool:
    """Is its process on this host gone? One of another host never counts as dead."""
    return is_near(hello) and not is_running(hello["pid"], hello["start"])
