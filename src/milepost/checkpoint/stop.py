"""The wish to stop: signals only set a flag, and an orphan gets a signal."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

_SIGNALS = ("TERM", "USR1", "USR2", "URG", "INT")
_PR_SET_PDEATHSIG = 1


class StopFlag:
    """Set by TERM, USR1, USR2, URG and INT between `install` and `restore`; `reason` names it."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._previous: dict[int, Any] = {}

    def install(self) -> None:
        """Take over the handlers; only the main thread can, elsewhere nothing happens."""
        if threading.current_thread() is not threading.main_thread():
            return
        for name in _SIGNALS:
            number = signal.Signals[f"SIG{name}"]
            self._previous[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Give back the handlers that were there before."""
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.reason = f"signal {signal.Signals(number).name.removeprefix('SIG')}"


def stop_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies (Linux; elsewhere nothing happens).

    A solver whose runner was killed must not go on as if it were still the one attempt.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl(PR_SET_PDEATHSIG): {os.strerror(code)}")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
