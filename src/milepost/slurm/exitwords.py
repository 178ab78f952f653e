"""What `exit:signal` means in words, given who printed it and by which version of Slurm.

Sources: the printer of sacct took 128 off exit values from 128 up until 25.05 (commits ceea258fe9
of 2014 and 831571cb84 of 2025); `batch_finish()` of slurmstepd puts a launch error of slurmd
(4021, say) into the wait status, of which 4021 & 127 = 53 is seen as a signal.
"""

from __future__ import annotations

import signal

from milepost.slurm.exitcode import OOM_SIGNAL, ExitCode
from milepost.slurm.version import Version

SHELL_BASE = 128
"""A shell says 128 + N of a child that signal N ended."""
UNCHANGED_SINCE: Version = (25, 11)
"""From this version on sacct prints exit codes as they are."""
SLURMD_BASE = 3968

_LAUNCH = {
    42: "the folder of the batch script could not be made on the node",
    46: "the environment could not be set up on the node",
    48: "the user could not be changed to on the node",
    52: "the program could not be executed on the node",
    53: "its output file could not be opened: the folder of the log is missing, over quota, "
    "read-only or not mounted on that node",
    54: "the site's start script (prolog) failed on the node",
}
_MILEPOST = {
    2: "usage or configuration",
    10: "scheduler",
    11: "the work failed",
    12: "data",
    13: "storage",
    20: "refused",
    21: "witnesses disagree",
    75: "stopped at a checkpoint, resumable",
}
_PLAIN = {126: "the command is not executable", 127: "the command was not found"}
_OFTEN = frozenset(["ILL", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "ALRM", "TERM"])


def explain_exit(
    exit_code: ExitCode,
    *,
    version: Version | None = None,
    exact: ExitCode | None = None,
    is_short: bool = False,
    is_shard: bool = False,
) -> str:
    """One clause about an exit code.

    `version` is that of the sacct that printed it, None when it was printed as it is (scontrol).
    `exact` is another reading that is never lessened, such as the derived exit code. `is_short`:
    the job ended within a second or two. `is_shard`: it ran `milepost shard`, whose codes have a
    meaning of their own.
    """
    if exit_code.signal:
        return _signal(exit_code.signal, is_short)
    code = exit_code.code
    if exact is not None and exact.code == code + SHELL_BASE:
        return f"{exact.code} in truth (this sacct prints codes from 128 up less 128): " + _code(
            exact.code
        )
    text = _MILEPOST.get(code) if is_shard else None
    text = _code(code) if text is None else f"milepost: {text}"
    is_settled = exact is not None and exact.code == code
    hidden = None if is_settled else _hidden(code, version)
    return text if hidden is None else f"{text}; or {hidden}"


def _code(code: int) -> str:
    if code in _PLAIN:
        return _PLAIN[code]
    name = signal_name(code - SHELL_BASE) if code > SHELL_BASE else None
    if name is not None:
        return f"128 + {code - SHELL_BASE}: a process was ended by signal {name}"
    return "success" if code == 0 else "the program said that it failed"


def _hidden(code: int, version: Version | None) -> str | None:
    """What an old sacct may have printed as this code."""
    if version is None or version >= UNCHANGED_SINCE or code == 0:
        return None
    true = code + SHELL_BASE
    name = signal_name(code)
    if name in _OFTEN:
        return f"{true} (ended by signal {name}), as Slurm before 25.11 takes 128 off"
    return f"{true}, as Slurm before 25.11 takes 128 off" if code in _PLAIN else None


def _signal(number: int, is_short: bool) -> str:
    if number == OOM_SIGNAL:
        return "killed for using more memory than it had asked for"
    if number == 53 or (is_short and number in _LAUNCH):
        return f"{_LAUNCH[number]} (slurmd error {SLURMD_BASE + number})"
    if is_short and number >= 33:
        return f"it could not be launched (slurmd error {SLURMD_BASE + number})"
    name = signal_name(number)
    return f"ended by signal {number}" + ("" if name is None else f" ({name})")


def signal_name(number: int) -> str | None:
    """`KILL` for 9; None for what is no signal here."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return None
