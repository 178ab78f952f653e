"""Job states: one base state and any number of flags, in all the spellings that Slurm has.

Sources: Slurm's "job state codes" page and job_state_string() in slurm_protocol_defs.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SHORT = {
    "PD": "PENDING",
    "R": "RUNNING",
    "S": "SUSPENDED",
    "CD": "COMPLETED",
    "CA": "CANCELLED",
    "F": "FAILED",
    "TO": "TIMEOUT",
    "NF": "NODE_FAIL",
    "PR": "PREEMPTED",
    "OOM": "OUT_OF_MEMORY",
    "DL": "DEADLINE",
    "BF": "BOOT_FAIL",
    "CG": "COMPLETING",
    "CF": "CONFIGURING",
    "RQ": "REQUEUED",
    "RH": "REQUEUE_HOLD",
    "RF": "REQUEUE_FED",
    "SE": "SPECIAL_EXIT",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "RD": "RESV_DEL_HOLD",
    "SI": "SIGNALING",
    "SO": "STAGE_OUT",
    "ST": "STOPPED",
}
ACTIVE = frozenset(["PENDING", "RUNNING", "SUSPENDED"])
TERMINAL = frozenset(
    [
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "OUT_OF_MEMORY",
        "DEADLINE",
        "BOOT_FAIL",
    ]
)
BASES = ACTIVE | TERMINAL
WAITING_FLAGS = frozenset(
    ["REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"]
)
"""Flags of a job that waits to run (again); it may be held."""
BUSY_FLAGS = frozenset(
    [
        "COMPLETING",
        "CONFIGURING",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
        "POWER_UP_NODE",
        "RECONFIG_FAIL",
        "EXPEDITING",
    ]
)
"""Flags of a job that has, or is being given, or has not yet let go of its nodes."""
FLAGS = WAITING_FLAGS | BUSY_FLAGS | frozenset(["REVOKED", "LAUNCH_FAILED", "UPDATE_DB"])

_CANCELLED_BY = re.compile(r"CANCELLED by (\d+)")


@dataclass(frozen=True, slots=True)
class State:
    """What one record says about a job.

    `base` is None where only a flag was printed, as `squeue` does with COMPLETING, or where the
    word is not known: then nothing follows from it. `cancelled_by` is a user id.
    """

    base: str | None
    flags: frozenset[str] = frozenset()
    cancelled_by: int | None = None
    raw: str = ""

    @property
    def is_terminal(self) -> bool:
        """Did this execution end? Not while nodes are cleaned or the job goes back to the queue."""
        unfinished = self.flags & (BUSY_FLAGS | WAITING_FLAGS | {"REVOKED"})
        return self.base in TERMINAL and not unfinished

    @property
    def is_success(self) -> bool:
        return self.base == "COMPLETED" and self.is_terminal

    @property
    def is_waiting(self) -> bool:
        """Does it wait to start, or to start again?"""
        return not self.is_busy and (self.base == "PENDING" or bool(self.flags & WAITING_FLAGS))

    @property
    def is_busy(self) -> bool:
        """Does it run, or still hold or clean its nodes?"""
        return self.base in ("RUNNING", "SUSPENDED") or bool(self.flags & BUSY_FLAGS)

    @property
    def is_requeued(self) -> bool:
        """Does the record say that the same job will run again?"""
        return bool(self.flags & WAITING_FLAGS)

    def __str__(self) -> str:
        words = [self.base or "", *sorted(self.flags)]
        return "+".join(word for word in words if word) or self.raw or "?"


def parse_state(value: str | Iterable[str]) -> State:
    """Read a state: a long or short word, `CANCELLED by 1000`, a cut `CANCELLED+`, a JSON list."""
    words = [value] if isinstance(value, str) else list(value)
    base: str | None = None
    flags: set[str] = set()
    killer: int | None = None
    for word in words:
        match = _CANCELLED_BY.match(word)
        if match is not None:
            killer = int(match[1]) if not word.endswith("+") else None
        name = _long_name(word)
        if name in BASES:
            base = name
        elif name:
            flags.add(name)
    return State(base, frozenset(flags), killer, ",".join(words))


def _long_name(word: str) -> str:
    """The long name of one word; a word that is not known stays as it is."""
    word = word.strip().upper().split(" ")[0]
    if word.endswith("+"):
        starts = [name for name in sorted(BASES | FLAGS) if name.startswith(word[:-1])]
        return starts[0] if len(starts) == 1 else word
    return _SHORT.get(word, word)
