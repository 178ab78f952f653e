"""Job ids: `123`, array tasks `123_4` and `123_[5-9,12%2]`, parts of a het job `123+0`, steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from milepost.errors import SchedulerError

_ID = re.compile(r"(\d+)(?:_(\d+|\[[^]]*\]))?(?:\+(\d+))?(?:\.(.+))?")
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


@dataclass(frozen=True, slots=True)
class JobId:
    """A job id in its parts.

    `tasks` is the text in the place of the array task: a number or `[5-9,12%2]`. `step` is
    `batch`, `extern`, `interactive`, `0`, `0+1`, …; None for the job itself.
    """

    base: int
    tasks: str | None
    het: int | None
    step: str | None

    @property
    def job(self) -> str:
        """The id without the step."""
        task = "" if self.tasks is None else f"_{self.tasks}"
        return f"{self.base}{task}" + ("" if self.het is None else f"+{self.het}")


def parse_job_id(text: str) -> JobId:
    """Take a job id apart. Raises SchedulerError when it is none."""
    match = _ID.fullmatch(text.strip())
    if match is None:
        raise SchedulerError(
            f"{text!r} is not a Slurm job id", fix="give a number, 123_4 for a task of an array"
        )
    return JobId(int(match[1]), match[2], None if match[3] is None else int(match[3]), match[4])


def expand(text: str) -> tuple[str, ...]:
    """The jobs that an id stands for: `7_[1-3,9%2]` is 7_1, 7_2, 7_3 and 7_9.

    A list that Slurm cut short (`7_[1,2,...]`) gives those that it names.
    """
    job = parse_job_id(text)
    if job.tasks is None or not job.tasks.startswith("["):
        return (job.job,)
    return tuple(f"{job.base}_{index}" for index in _indices(job.tasks[1:-1]))


def checked(job_ids: Iterable[str]) -> tuple[str, ...]:
    """The ids without doubles, in order. Raises SchedulerError for what is not an id."""
    return tuple(dict.fromkeys(parse_job_id(job_id).job for job_id in job_ids))


def batches(job_ids: Sequence[str], size: int = 400) -> Iterator[Sequence[str]]:
    """The ids in pieces that fit on a command line and into one query."""
    for start in range(0, len(job_ids), size):
        yield job_ids[start : start + size]


def _indices(text: str) -> Iterator[int]:
    for part in text.split("%")[0].split(","):
        match = _RANGE.fullmatch(part)
        if match is not None:
            first, last = int(match[1]), int(match[2] or match[1])
            yield from range(first, last + 1, int(match[3] or 1))
