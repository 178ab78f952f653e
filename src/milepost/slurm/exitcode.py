"""`exit:signal` as Slurm prints it; `slurm.exitwords` says what it means."""

from __future__ import annotations

import re
from dataclasses import dataclass

OOM_SIGNAL = 125
"""Slurm's own number for a kill by the memory limit."""

_PAIR = re.compile(r"(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class ExitCode:
    """An exit code and the number of the signal that ended the process (0: none)."""

    code: int
    signal: int

    @property
    def is_success(self) -> bool:
        return self.code == 0 and self.signal == 0

    def __str__(self) -> str:
        return f"{self.code}:{self.signal}"


def parse_exit_code(text: str) -> ExitCode | None:
    """Read `exit:signal`; None when it was not recorded."""
    match = _PAIR.fullmatch(text.strip())
    return None if match is None else ExitCode(int(match[1]), int(match[2]))
