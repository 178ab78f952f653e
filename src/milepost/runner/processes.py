"""A pool of processes: one per task, started by posix_spawn without a shell in between.

posix_spawn shares the parent's memory until the exec, so that a start costs the same however
large this process is. Each task leads a process group of its own: a Ctrl-C at the terminal
reaches the runner alone, and a task is ended with all that it started. Output goes to a log per
slot; the part that a task wrote is read back only when it is needed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from milepost.errors import ConfigError
from milepost.runner.job import Completion, Job

TAIL_BYTES = 64 << 10
_DEFAULT_SIGNALS = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGURG,
    signal.SIGHUP,
)

_NOT_STARTED = {
    errno.ENOEXEC: "begin the script with a line such as #!/bin/sh, or name its interpreter",
    errno.EACCES: "make it executable (chmod +x), or name its interpreter",
    errno.ENOENT: "mend its first line: the interpreter named there is missing",
    errno.E2BIG: "write such a long value into a file and name the file in the table",
}

Command = tuple[Sequence[str], Mapping[str, str]]
"""argv and the variables that are added to the environment."""


def find_program(name: str) -> str:
    """Absolute path of a program, or a ConfigError that says what was looked for."""
    path = shutil.which(name)
    if path is None:
        raise ConfigError(
            f"there is no program {name!r}",
            where="work.command",
            fix="install it, load its module, or give its path",
        )
    return path


def spawn(
    argv: Sequence[str], env: Mapping[str, str], stdout_fd: int, stderr_fd: int, program: str
) -> int:
    """Start a process in a group of its own, with stdin from nowhere; return its id.

    ConfigError for what the kernel does not start: a script without `#!`, too long a value.
    """
    try:
        return os.posix_spawn(
            program,
            list(argv),
            env,
            file_actions=(
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, stdout_fd, 1),
                (os.POSIX_SPAWN_DUP2, stderr_fd, 2),
            ),
            setpgroup=0,
            setsigdef=_DEFAULT_SIGNALS,
            setsigmask=(),
        )
    except OSError as error:
        if error.errno not in _NOT_STARTED:
            raise
        raise ConfigError(
            f"{program!r} cannot be started ({error.strerror})",
            where="work.command",
            fix=_NOT_STARTED[error.errno],
        ) from error


def kill_group(pid: int, number: int) -> None:
    """Signal a process and all that it started and that stayed in its group."""
    with contextlib.suppress(ProcessLookupError):  # it ended meanwhile: that is what was wanted
        os.killpg(pid, number)


@dataclass(slots=True)
class _Slot:
    """A place where one task runs at a time, with its log and its share of the hardware."""

    log_path: Path
    env: dict[str, str]
    separate_stdout: bool
    log_fd: int = -1
    out_fd: int = -1
    log_start: int = 0
    out_start: int = 0
    job: Job | None = None
    started: float = 0.0

    def open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self.log_fd = os.open(self.log_path, flags, 0o666)
        if self.separate_stdout:
            self.out_fd = os.open(self.log_path.with_suffix(".out"), flags, 0o666)
        else:
            self.out_fd = self.log_fd


def read_tail(fd: int, start: int, limit: int = TAIL_BYTES) -> bytes:
    end = os.fstat(fd).st_size
    start = max(start, end - limit)
    return os.pread(fd, end - start, start) if end > start else b""


@dataclass(slots=True)
class ProcessPool:
    """`command_of(job)` gives argv and variables of a job; `slot_env` those of each slot."""

    command_of: Callable[[Job], Command]
    slot_env: Sequence[Mapping[str, str]]
    log: Callable[[int], Path]
    separate_stdout: bool = False
    capacity: int = 0
    _slots: list[_Slot] = field(default_factory=list)
    _idle: list[_Slot] = field(default_factory=list)
    _running: dict[int, _Slot] = field(default_factory=dict)
    _programs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        base = dict(os.environ)
        for number, extra in enumerate(self.slot_env):
            self._slots.append(_Slot(self.log(number), base | dict(extra), self.separate_stdout))
        self._idle = list(reversed(self._slots))
        self.capacity = len(self._slots)

    def free(self) -> int:
        return len(self._idle)

    def in_flight(self) -> int:
        return len(self._running)

    def start(self, job: Job) -> None:
        slot = self._idle.pop()
        if slot.log_fd < 0:
            slot.open()
        argv, extra = self.command_of(job)
        program = self._programs.get(argv[0])
        if program is None:
            program = self._programs[argv[0]] = find_program(argv[0])
        slot.log_start = os.fstat(slot.log_fd).st_size
        slot.out_start = os.fstat(slot.out_fd).st_size if self.separate_stdout else slot.log_start
        slot.job, slot.started = job, time.monotonic()
        slot.env.update(extra)
        try:
            pid = spawn(argv, slot.env, slot.out_fd, slot.log_fd, program)
        except (ConfigError, OSError):
            self._idle.append(slot)
            raise
        self._running[pid] = slot

    def reap(self) -> list[Completion]:
        ended = []
        while self._running:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            slot = self._running.pop(pid, None)
            if slot is not None and slot.job is not None:
                seconds = time.monotonic() - slot.started
                code = os.waitstatus_to_exitcode(status)
                cpu_s = usage.ru_utime + usage.ru_stime
                ended.append(self._complete(slot, code, seconds, cpu_s, usage.ru_maxrss << 10))
                self._idle.append(slot)
        return ended

    def _complete(
        self, slot: _Slot, code: int, seconds: float, cpu_s: float, rss_bytes: int
    ) -> Completion:
        assert slot.job is not None
        job, slot.job = slot.job, None
        output = b"" if code == 0 else read_tail(slot.log_fd, slot.log_start)
        last_line = None
        if self.separate_stdout:
            tail = read_tail(slot.out_fd, slot.out_start).decode("utf-8", "replace").rstrip()
            last_line = tail.rpartition("\n")[2]
        if code != 0 or os.fstat(slot.log_fd).st_size > slot.log_start:
            os.write(slot.log_fd, f"== task {job.task.key} exit {code}\n".encode())
        return Completion(job, code, seconds, cpu_s, rss_bytes, output, None, last_line)

    def give_back(self) -> list[Job]:
        return []

    def kill(self, number: int) -> None:
        for pid in list(self._running):
            kill_group(pid, number)

    def close(self) -> None:
        self.kill(signal.SIGKILL)
        for pid in list(self._running):
            os.waitpid(pid, 0)
        self._running.clear()
        for slot in self._slots:
            for fd in {slot.log_fd, slot.out_fd} - {-1}:
                os.close(fd)
            slot.log_fd = slot.out_fd = -1
