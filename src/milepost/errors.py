"""Errors that reach a person: each says what, which value, where, and what to do next.

The exit code belongs to the class, so that a batch script can branch on it (docs/formats.md
lists them). Anything that is not a MilepostError is a defect of milepost and keeps its trace.
"""

from __future__ import annotations

RESUMABLE = 75
"""Exit code of a process that stopped at a durable checkpoint and can go on from there."""


class MilepostError(Exception):
    """A failure with a remedy.

    `what` names the thing and its value, `where` the file, line or key, `fix` the next step.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: object = None, fix: str | None = None) -> None:
        self.what = what
        self.where = None if where is None else str(where)
        self.fix = fix
        super().__init__(what)

    def __str__(self) -> str:
        text = self.what if self.where is None else f"{self.where}: {self.what}"
        return text if self.fix is None else f"{text}\n  next: {self.fix}"


class ConfigError(MilepostError):
    """The configuration or the command line is wrong."""

    exit_code = 2


class SchedulerError(MilepostError):
    """The scheduler could not be asked, or refused."""

    exit_code = 10


class RuntimeFailure(MilepostError):
    """The work itself failed: a program ended badly."""

    exit_code = 11


class DataError(MilepostError):
    """Input, journal, checkpoint or artifact is damaged or not what it should be."""

    exit_code = 12


class StorageError(MilepostError):
    """A tier is full, read-only, slow or gone."""

    exit_code = 13


class Refused(MilepostError):
    """Going on would break the contract or make an illegal restart."""

    exit_code = 20


class Suspect(MilepostError):
    """The witnesses disagree, or one of them cannot be heard."""

    exit_code = 21
