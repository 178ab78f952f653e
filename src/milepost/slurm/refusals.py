"""What Slurm's refusal of a request means, by the words that it is refused with.

The texts are those of slurm_errno.c; they have not changed from 20.11 to 25.11. Where a limit of
a QOS or an association binds, the line before names it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from milepost.slurm.reasons import parse_reason

_LIMIT = re.compile(r"\b((?:QOS|Assoc)[A-Z]\w+)")
_REFUSALS = (
    (
        "submit limit",
        "accounting/qos policy",
        "over a limit of your account or QOS",
        "see `sacctmgr show assoc where user=$USER` and wait until some of your jobs have ended",
    ),
    (
        "partition",
        "invalid partition",
        "there is no such partition",
        "see `sinfo -s` for the partitions",
    ),
    (
        "partition",
        "required partition not available",
        "the partition is down or drained",
        "wait, or name another partition",
    ),
    (
        "account",
        "invalid account",
        "you have no such account, or not in this partition",
        "see `sacctmgr show assoc where user=$USER format=account,partition,qos`",
    ),
    (
        "QOS",
        "invalid qos",
        "there is no such QOS, or your account may not use it",
        "see `sacctmgr show assoc where user=$USER format=account,qos`",
    ),
    (
        "time limit",
        "time limit",
        "the time is more than the partition or the QOS allows",
        "ask for less runtime_s, or name a partition with a longer limit: `sinfo -s`",
    ),
    (
        "partition limits",
        "requested partition configuration",
        "the request is over the partition's limits",
        "compare it with `scontrol show partition`",
    ),
    ("memory", "memory specification", "no node has that much memory", "ask for less mem_mb"),
    ("CPUs", "cpu count", "no node has that many CPUs", "ask for fewer cpus"),
    ("nodes", "node count", "the partition has, or allows, fewer nodes", "ask for fewer nodes"),
    (
        "nodes",
        "requested node configuration",
        "no node of the partition has that many CPUs, that much memory or those GPUs",
        "compare the request with `sinfo -o '%P %c %m %G %l'`",
    ),
    (
        "array",
        "invalid job array",
        "an index of the array is MaxArraySize or more",
        "use smaller indices; see `scontrol show config | grep MaxArraySize`",
    ),
    (
        "reservation",
        "reservation",
        "the reservation does not exist, is over, or is not yours",
        "see `scontrol show reservation`",
    ),
    ("constraint", "feature specification", "no node has that feature", "see `sinfo -o '%P %f'`"),
    ("GPUs", "generic resource", "no node has such a resource", "see `sinfo -o '%P %G'`"),
)


@dataclass(frozen=True, slots=True)
class Binding:
    """A limit that a request runs into: its name, what it means, and what to do."""

    limit: str
    meaning: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.limit}: {self.meaning}; {self.remedy}"


def refusal(message: str) -> Binding:
    """Which limit Slurm's refusal speaks of; a limit of a QOS or an account by its own name."""
    limit = _LIMIT.search(message)
    if limit is not None:
        reason = parse_reason(limit[1])
        return Binding(limit[1], reason.meaning, reason.advice or reason.says)
    for name, words, meaning, remedy in _REFUSALS:
        if words in message.lower():
            return Binding(name, meaning, remedy)
    return Binding("site rule", message, "ask the site, or see its documentation")
