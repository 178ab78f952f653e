"""Run one Slurm command: no shell, bounded in time, and a failure is never taken for an answer.

Slurm prints local times without a zone, and its clients format them themselves. Every command
therefore runs with TZ=UTC: its times are UTC, also in the hour that a change of clocks repeats.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from milepost.errors import SchedulerError

TIMEOUT_S = 60.0
"""How long a command may take; slurmctld and slurmdbd of a busy site take tens of seconds."""

SEPARATOR = "\x1f"
"""Stands between the fields that are asked for: no job name or comment contains it."""

_UNSET_PREFIXES = ("SQUEUE_", "SACCT_", "SINFO_", "SLURM_TIME_FORMAT")
_SET = {"LC_ALL": "C", "TZ": "UTC", "SLURM_BITSTR_LEN": "0"}
_SHOWN_CHARACTERS = 600


@dataclass(frozen=True, slots=True)
class Said:
    """What a command said, whatever its exit code."""

    argv: tuple[str, ...]
    exit_code: int
    out: str
    err: str

    def text(self) -> str:
        """Its complaint: what it wrote to stderr, else to stdout."""
        return (self.err.strip() or self.out.strip())[:_SHOWN_CHARACTERS]


class NotHeard(SchedulerError):
    """A Slurm command failed, hung or is not there: nothing follows about any job.

    `said` is what it said, None when it said nothing.
    """

    def __init__(self, what: str, *, said: Said | None = None, fix: str) -> None:
        super().__init__(what, where="Slurm", fix=fix)
        self.said = said


Runner = Callable[[Sequence[str], Mapping[str, str], float], Said]
"""Runs argv with an environment and a timeout in seconds; raises OSError or TimeoutError."""


def ask(*argv: str, timeout_s: float = TIMEOUT_S) -> str:
    """What the command wrote to stdout. Raises NotHeard when it failed in any way."""
    said = run(*argv, timeout_s=timeout_s)
    if said.exit_code != 0:
        raise failed(said)
    return said.out


def run(*argv: str, timeout_s: float = TIMEOUT_S) -> Said:
    """What the command said and its exit code. Raises NotHeard when it hung or is not there."""
    try:
        return _runner(argv, environment(os.environ), timeout_s)
    except TimeoutError:
        raise NotHeard(
            f"`{_shown(argv)}` did not answer within {timeout_s:g} s",
            fix="see whether slurmctld and slurmdbd answer: scontrol ping; then try again",
        ) from None
    except OSError as error:
        raise NotHeard(
            f"`{_shown(argv)}` could not be run: {error.strerror or error}",
            fix="run it where Slurm's commands are on the PATH, such as a login node",
        ) from error


def failed(said: Said) -> NotHeard:
    """The error for a command whose exit code is not 0."""
    return NotHeard(
        f"`{_shown(said.argv)}` ended with {said.exit_code}: {said.text() or 'no word of why'}",
        said=said,
        fix="see whether slurmctld and slurmdbd answer: scontrol ping; then try again",
    )


def environment(outer: Mapping[str, str]) -> dict[str, str]:
    """The environment for a Slurm command: no setting of a user's changes what it prints."""
    kept = {name: value for name, value in outer.items() if not name.startswith(_UNSET_PREFIXES)}
    return {**kept, **_SET}


@contextmanager
def replaced_by(runner: Runner) -> Iterator[None]:
    """Let another runner answer, such as one with recorded answers."""
    global _runner
    before, _runner = _runner, runner
    try:
        yield
    finally:
        _runner = before


def run_process(argv: Sequence[str], environ: Mapping[str, str], timeout_s: float) -> Said:
    """Run it as a process in a session of its own, so that nothing of it outlives the timeout."""
    with subprocess.Popen(
        list(argv),
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeoutError from None
            raise
    return Said(tuple(argv), process.returncode, out, err)


def _shown(argv: Sequence[str]) -> str:
    text = " ".join(argv).replace(SEPARATOR, "|")
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + " …"


_runner: Runner = run_process
