"""One long process at a time: start it, pass stop signals on, keep its log, wait for its end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from milepost.runner.attempt import TERM_GRACE_S
from milepost.runner.oom import OomCounter
from milepost.runner.processes import TAIL_BYTES, find_program, kill_group, read_tail, spawn
from milepost.runner.signals import SignalLoop

LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Ended:
    """How the process ended. `stop` is why it was told to stop, None when it was not.

    `oom_kills` counts processes of this job that the kernel killed for want of memory meanwhile;
    None where it does not tell.
    """

    exit_code: int
    seconds: float
    cpu_s: float
    max_rss_bytes: int
    output: bytes
    stop: str | None
    oom_kills: int | None = None


@dataclass(frozen=True, slots=True)
class StopRule:
    """When and how to stop a process.

    At `soft` (monotonic seconds) it is sent `number`; at `hard` it is ended. A stop signal to the
    runner is passed on at once and `grace_s` counts from there.
    """

    number: int
    soft: float
    hard: float
    grace_s: float


def run_process(
    argv: Sequence[str],
    extra: Mapping[str, str],
    log: Path,
    loop: SignalLoop,
    rule: StopRule,
    look: Callable[[int], None],
) -> Ended:
    """Run to the end. `look(pid)` is called several times a second; it may raise."""
    log.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        start = os.fstat(fd).st_size
        env = dict(os.environ) | dict(extra)
        oom = OomCounter()
        before = oom.known
        began = time.monotonic()
        pid = spawn(argv, env, fd, fd, find_program(argv[0]))
        try:
            status, usage, stop = _supervise(pid, loop, rule, look)
        except BaseException:
            kill_group(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        code = os.waitstatus_to_exitcode(status)
        kill_group(pid, signal.SIGKILL)  # what it left behind in its group
        return Ended(
            code,
            time.monotonic() - began,
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss << 10,
            read_tail(fd, start, TAIL_BYTES),
            stop,
            oom.rose_since(before),
        )
    finally:
        os.close(fd)


def _supervise(
    pid: int, loop: SignalLoop, rule: StopRule, look: Callable[[int], None]
) -> tuple[int, os.struct_rusage, str | None]:  # type: ignore[name-defined]
    stop: str | None = None
    told, kill_at, ended = False, rule.hard, False
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return status, usage, stop
        now = time.monotonic()
        if stop is None:
            if loop.stop is not None:
                stop, kill_at = f"signal {loop.stop}", min(rule.hard, now + rule.grace_s)
            elif now >= rule.soft:
                stop = "walltime"
        if stop is not None and not told:
            told = True
            kill_group(pid, rule.number)
        if now >= kill_at or loop.stops > 1:
            stop = stop or "walltime"
            if not ended:
                ended, kill_at = True, now + TERM_GRACE_S
                kill_group(pid, signal.SIGTERM)
            else:
                kill_group(pid, signal.SIGKILL)
        look(pid)
        loop.wait(LOOK_EVERY_S)
