"""Signals become facts that a loop can look at; no work is done in a handler.

A single pipe wakes the loop: the interpreter writes a byte into it for each signal, SIGCHLD
included, so that one `poll` waits for children, stop signals and worker pipes alike.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType, TracebackType

STOP_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGURG,
    signal.SIGHUP,
)


class SignalLoop:
    """While entered, stop signals set `stop`; `wait` sleeps until something happens.

    `stop` is the first stop signal's name such as `TERM`; `stops` counts them, so that a second
    Ctrl-C can mean more than the first. Only in the main thread.
    """

    def __init__(self) -> None:
        self.stop: str | None = None
        self.stopped_at: float | None = None
        self.stops = 0
        self._callbacks: dict[int, Callable[[], None]] = {}

    def __enter__(self) -> SignalLoop:
        self._read_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._write_fd = write_fd
        self._old_wakeup = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        self._old = {s: signal.signal(s, self._on_stop) for s in STOP_SIGNALS}
        self._old[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _wake)
        self._poll = select.poll()
        self._poll.register(self._read_fd, select.POLLIN)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_wakeup)
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self.stops += 1
        if self.stop is None:
            self.stop = signal.Signals(number).name.removeprefix("SIG")
            self.stopped_at = time.monotonic()

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call `callback` from `wait` when `fd` can be read or is at its end."""
        self._callbacks[fd] = callback
        self._poll.register(fd, select.POLLIN)

    def forget(self, fd: int) -> None:
        del self._callbacks[fd]
        self._poll.unregister(fd)

    def wait(self, timeout_s: float) -> None:
        """Sleep until a signal, a child's end or a watched descriptor, at most `timeout_s`."""
        for fd, _ in self._poll.poll(max(0.0, timeout_s) * 1000):
            if fd == self._read_fd:
                _drain(fd)
            else:
                self._callbacks[fd]()


def _wake(number: int, frame: FrameType | None) -> None:
    """Exists so that SIGCHLD is not ignored; the wakeup pipe does the rest."""


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass
