"""`exit:signal` as Slurm prints it, and what it means in words.

sacct took 128 off exit codes of 128 and more from 14.x up to 25.05 (a shell's 137 became `9:0`)
and stopped with 25.11. scontrol, DerivedExitCode and JSON never did. Sources: the printer of
sacct; batch_finish() of slurmstepd and slurm_errno.h for what stands at the place of a signal
when a job could not be launched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OOM_SIGNAL = 125
"""Slurm's own number for a kill by the memory limit."""
UNSUBTRACTED_SINCE = (25, 11)
_LAUNCH_ERROR_BASE = 3968
"""A launch error of slurmd, 4000 and more, is cut to seven bits where a signal would stand."""

_PAIR = re.compile(r"(\d+):(\d+)")
_SIGNALS = {
    1: ("HUP", "its terminal or session went away"),
    2: ("INT", "interrupted"),
    3: ("QUIT", "asked to quit with a core dump"),
    4: ("ILL", "an instruction that this CPU does not have: built for another kind of node"),
    5: ("TRAP", "a trap of a debugger or of a runtime check"),
    6: ("ABRT", "the program gave up by itself: an assertion, or an allocation that failed"),
    7: ("BUS", "a memory-mapped file or shared memory went away or was full"),
    8: ("FPE", "an arithmetic error such as a division by zero"),
    9: ("KILL", "killed outright: out of memory, or ended after KillWait or GraceTime"),
    10: ("USR1", "a signal that the program does not handle, often the checkpoint signal"),
    11: ("SEGV", "a wrong memory access, or a stack that was too small"),
    12: ("USR2", "a signal that the program does not handle, often the checkpoint signal"),
    13: ("PIPE", "wrote to a pipe whose reader was gone"),
    14: ("ALRM", "a timer that the program does not handle"),
    15: ("TERM", "asked to end: scancel, time limit, preemption or a failed neighbour"),
    24: ("XCPU", "used up its CPU time limit (ulimit -t)"),
    25: ("XFSZ", "a file grew past its limit (ulimit -f)"),
}
_LAUNCH_ERRORS = {
    42: "the folder for the batch script could not be made on the node (full or read-only spool)",
    46: "the environment of the job could not be set up on the node",
    48: "the user or group of the job is not known on the node",
    52: "the program could not be executed on the node",
    53: "the output file could not be opened: its folder is missing, not mounted on that node, "
    "read-only or over quota; there is no log",
    54: "the site's prolog failed on the node",
}
_CODES = {
    1: "a general failure",
    2: "wrong usage, or a failure of the program's own kind",
    75: "stopped at a checkpoint, resumable",
    126: "the command is there but cannot be executed",
    127: "the command was not found",
}


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


def possible_codes(code: int, version: tuple[int, int] | None, by_sacct: bool) -> tuple[int, ...]:
    """The exit codes that the process may have had, given what was printed.

    Two where sacct may have taken 128 off, or where the version is not known.
    """
    is_exact = not by_sacct or (version is not None and version >= UNSUBTRACTED_SINCE)
    return (code,) if is_exact or code >= 128 or code == 0 else (code, code + 128)


def explain(
    exit_code: ExitCode | None,
    version: tuple[int, int] | None = None,
    *,
    by_sacct: bool = True,
) -> str:
    """Say in words how a process ended.

    `version` is that of Slurm; `by_sacct` is False for what scontrol, DerivedExitCode or JSON
    says.
    """
    if exit_code is None:
        return "no exit code was recorded"
    if exit_code.signal:
        return f"{exit_code}: {_signalled(exit_code.signal)}"
    if exit_code.code == 0:
        return "0:0: ended without an error, or its state alone tells how it ended"
    readings = [_exited(one) for one in possible_codes(exit_code.code, version, by_sacct)]
    if len(readings) == 1:
        return f"{exit_code}: {readings[0]}"
    return f"{exit_code}: {readings[0]}; or, as sacct takes 128 off, {readings[1]}"


def signal_name(number: int) -> str:
    """`KILL` for 9; the number where it has no name here."""
    return _SIGNALS[number][0] if number in _SIGNALS else str(number)


def _signalled(number: int) -> str:
    if number == OOM_SIGNAL:
        return "killed because it needed more memory than was asked for (Slurm's number 125)"
    if number in _SIGNALS:
        name, why = _SIGNALS[number]
        return f"ended by signal {number} ({name}): {why}"
    if number in _LAUNCH_ERRORS:
        error = _LAUNCH_ERROR_BASE + number
        return f"was not started (error {error} of slurmd): {_LAUNCH_ERRORS[number]}"
    if number >= 33:
        error = _LAUNCH_ERROR_BASE + number
        return f"ended by signal {number}, or was not started (error {error} of slurmd)"
    return f"ended by signal {number}"


def _exited(code: int) -> str:
    number = code - 128
    if number in _SIGNALS:
        name, why = _SIGNALS[number]
        return f"exit code {code} = 128+{number}: a shell saw its program end by {name}: {why}"
    return f"exit code {code}: {_CODES[code]}" if code in _CODES else f"exit code {code}"
