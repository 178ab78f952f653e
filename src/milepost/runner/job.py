"""What a pool is given and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from milepost.model import Task


@dataclass(frozen=True, slots=True)
class Job:
    """A task in this attempt. `out` is its private folder, None when the work needs none."""

    task: Task
    out: Path | None


@dataclass(frozen=True, slots=True)
class Completion:
    """How a job ended.

    `exit_code` is negative for a signal. `output` is the end of what it printed (stdout and
    stderr); `returned` what a callable returned; `last_line` the end of stdout where the result
    is read from it. Times are seconds of this execution; `max_rss_bytes` is None where the
    platform cannot tell one task from its worker.
    """

    job: Job
    exit_code: int
    seconds: float
    cpu_s: float | None
    max_rss_bytes: int | None
    output: bytes = b""
    returned: Mapping[str, Any] | None = None
    last_line: str | None = None


class Pool(Protocol):
    """Runs jobs, `capacity` of them at a time."""

    capacity: int

    def free(self) -> int:
        """How many more jobs can be handed over now without delaying others."""

    def start(self, job: Job) -> None:
        """Begin a job; only while `free()` is positive."""

    def reap(self) -> list[Completion]:
        """Jobs that ended since the last call; never blocks."""

    def in_flight(self) -> int:
        """Jobs that were started and have not been reaped."""

    def give_back(self) -> list[Job]:
        """Take back the jobs that were handed over but have not begun."""

    def kill(self, number: int) -> None:
        """Send a signal to all that runs."""

    def close(self) -> None:
        """End everything that still runs."""
