"""A pool of persistent workers for Python callables: the import is paid once per worker.

Short tasks are handed over several at a time, so that a worker never waits for the runner; the
depth follows the measured duration. When a worker dies, the task it was in has failed and the
ones behind it are taken back.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milepost.runner.job import Completion, Job
from milepost.runner.processes import TAIL_BYTES, kill_group, read_tail, spawn
from milepost.runner.signals import SignalLoop

AHEAD_S = 0.05
"""So much work a worker should have before it: enough to hide the runner's other duties."""
MAX_DEPTH = 64


@dataclass(slots=True)
class _Worker:
    pid: int
    requests_fd: int
    answers_fd: int
    log_fd: int
    jobs: deque[Job] = field(default_factory=deque)
    buffer: bytes = b""
    log_start: int = 0
    begun: float = 0.0


class WorkerPool:
    """`function` is `package.module:name`; `loop` watches the answer pipes."""

    def __init__(
        self,
        function: str,
        slot_env: Sequence[Mapping[str, str]],
        log: Callable[[int], Path],
        loop: SignalLoop,
    ) -> None:
        self.capacity = len(slot_env)
        self._function = function
        self._slot_env = slot_env
        self._log = log
        self._loop = loop
        self._workers: dict[int, _Worker] = {}
        self._ended: list[Completion] = []
        self._taken_back: list[Job] = []
        self._mean_s: float | None = None

    def _depth(self) -> int:
        if self._mean_s is None:
            return 1
        return max(1, min(MAX_DEPTH, int(AHEAD_S / max(self._mean_s, 1e-6))))

    def free(self) -> int:
        queued = sum(len(w.jobs) for w in self._workers.values())
        return max(0, self.capacity * self._depth() - queued)

    def in_flight(self) -> int:
        return sum(len(w.jobs) for w in self._workers.values())

    def start(self, job: Job) -> None:
        slot = min(
            range(self.capacity),
            key=lambda n: len(self._workers[n].jobs) if n in self._workers else 0,
        )
        worker = self._workers.get(slot) or self._hire(slot)
        request = {
            "key": job.task.key,
            "params": dict(job.task.params),
            "out": None if job.out is None else str(job.out),
        }
        if not worker.jobs:
            worker.begun = time.monotonic()
            worker.log_start = os.fstat(worker.log_fd).st_size
        worker.jobs.append(job)
        # a worker that died has its answer pipe at its end: `_bury` reports all its jobs
        with contextlib.suppress(BrokenPipeError):
            os.write(worker.requests_fd, (json.dumps(request) + "\n").encode())

    def _hire(self, slot: int) -> _Worker:
        their_requests, requests = os.pipe2(os.O_CLOEXEC)
        answers, their_answers = os.pipe2(os.O_CLOEXEC)
        log = self._log(slot)
        log.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        log_fd = os.open(log, flags, 0o666)
        os.set_inheritable(their_requests, True)
        os.set_inheritable(their_answers, True)
        argv = [sys.executable, "-m", "milepost.runner.worker", self._function]
        argv += [str(their_requests), str(their_answers), str(os.getpid())]
        env = dict(os.environ) | dict(self._slot_env[slot])
        pid = spawn(argv, env, log_fd, log_fd, sys.executable)
        os.close(their_requests)
        os.close(their_answers)
        os.set_blocking(answers, False)
        worker = self._workers[slot] = _Worker(pid, requests, answers, log_fd)
        self._loop.watch(answers, lambda: self._listen(slot))
        return worker

    def _listen(self, slot: int) -> None:
        worker = self._workers[slot]
        try:
            data = os.read(worker.answers_fd, 1 << 20)
        except BlockingIOError:
            return
        if not data:
            self._bury(slot)
            return
        *lines, worker.buffer = (worker.buffer + data).split(b"\n")
        for line in lines:
            self._take(worker, json.loads(line))

    def _take(self, worker: _Worker, answer: dict[str, Any]) -> None:
        job = worker.jobs.popleft()
        worker.begun = time.monotonic()
        seconds = float(answer["seconds"])
        self._mean_s = seconds if self._mean_s is None else 0.8 * self._mean_s + 0.2 * seconds
        self._ended.append(
            Completion(
                job,
                int(answer["exit"]),
                seconds,
                answer["cpu_s"],
                answer["max_rss_bytes"],
                answer.get("trace", "").encode(),
                answer["returned"],
            )
        )

    def _bury(self, slot: int) -> None:
        worker = self._workers.pop(slot)
        self._loop.forget(worker.answers_fd)
        _, status = os.waitpid(worker.pid, 0)
        if worker.jobs:
            output = read_tail(worker.log_fd, worker.log_start, TAIL_BYTES)
            code = os.waitstatus_to_exitcode(status) or 1
            seconds = time.monotonic() - worker.begun
            self._ended.append(Completion(worker.jobs.popleft(), code, seconds, None, None, output))
            self._taken_back += worker.jobs
        for fd in (worker.requests_fd, worker.answers_fd, worker.log_fd):
            os.close(fd)

    def reap(self) -> list[Completion]:
        ended, self._ended = self._ended, []
        return ended

    def give_back(self) -> list[Job]:
        jobs, self._taken_back = self._taken_back, []
        return jobs

    def kill(self, number: int) -> None:
        for worker in self._workers.values():
            kill_group(worker.pid, number)

    def close(self) -> None:
        for worker in self._workers.values():
            os.close(worker.requests_fd)  # an idle worker ends at the end of its pipe
            if worker.jobs:
                kill_group(worker.pid, signal.SIGKILL)
            self._loop.forget(worker.answers_fd)
            os.waitpid(worker.pid, 0)
            os.close(worker.answers_fd)
            os.close(worker.log_fd)
        self._workers.clear()
