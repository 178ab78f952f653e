"""When a waiting job may start: priority, fair share, forecast, and the limit it runs against.

Each function raises NotHeard when its command fails, and returns None when Slurm answered that
there is nothing: no priorities are computed with PriorityType=priority/basic, no forecast is made
before the scheduler has looked, and a site may keep shares to itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from milepost.slurm.command import SEPARATOR, ask
from milepost.slurm.jobids import checked
from milepost.slurm.queue import parse_fields
from milepost.slurm.reasons import Reason
from milepost.slurm.units import parse_count, parse_time

_PARTS = {
    "age": "%A",
    "fair share": "%F",
    "job size": "%J",
    "partition": "%P",
    "QOS": "%Q",
    "TRES": "%T",
    "association": "%B",
    "admin": "%S",
    "nice": "%N",
}
_SHARES = ("Account", "User", "RawShares", "NormShares", "EffectvUsage", "FairShare")
_SHARD_COMMENT = re.compile(r"rule_shard_wildcards_([a-z0-9-]+)_(\d{4,})")


@dataclass(frozen=True, slots=True)
class Priority:
    """A job's priority and its weighted parts (zero ones left out); `nice` is subtracted.

    `ahead` counts waiting jobs of the same partition with a higher priority.
    """

    value: int
    parts: Mapping[str, float]
    ahead: int | None


@dataclass(frozen=True, slots=True)
class Share:
    """What a user may use of an account: shares and use as fractions, the factor from 0 to 1."""

    account: str
    user: str
    raw_shares: str
    share: float | None
    usage: float | None
    factor: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """When (seconds since the epoch) and on which nodes the scheduler expects to start a job."""

    start: float
    nodes: str | None


def priority(job_id: str) -> Priority | None:
    """The priority of a waiting job; None when Slurm computes none for it."""
    (job,) = checked([job_id])
    out = ask("sprio", "-h", "-j", job, "-o", SEPARATOR.join(["%r", "%Y", *_PARTS.values()]))
    rows = [line.split(SEPARATOR) for line in out.splitlines()]
    rows = [row for row in rows if len(row) == len(_PARTS) + 2 and parse_count(row[1]) is not None]
    if not rows:
        return None
    partition, value, *parts = max(rows, key=lambda row: parse_count(row[1]) or 0)
    known = {name: _number(text) for name, text in zip(_PARTS, parts, strict=True)}
    total = int(value)
    return Priority(total, {n: v for n, v in known.items() if v}, _ahead(partition.strip(), total))


def _ahead(partition: str, value: int) -> int:
    out = ask("squeue", "-h", "-r", "-t", "PD", "-p", partition, "-o", "%Q")
    return sum((parse_count(line) or 0) > value for line in out.splitlines())


def share(user: str, account: str) -> Share | None:
    """The user's share of the account; None where Slurm shows none."""
    out = ask("sshare", "-n", "-P", "-A", account, "-u", user, "-o", ",".join(_SHARES))
    for line in out.splitlines():
        row = [value.strip() for value in line.split("|")]
        if len(row) == len(_SHARES) and row[:2] == [account, user]:
            return Share(account, user, row[2], _number(row[3]), _number(row[4]), _number(row[5]))
    return None


def forecast(job_id: str) -> Forecast | None:
    """The scheduler's own estimate; None when it has made none."""
    (job,) = checked([job_id])
    out = ask("squeue", "--start", "-h", "-j", job, "-o", f"%S{SEPARATOR}%Y")
    for line in out.splitlines():
        start, _, nodes = line.partition(SEPARATOR)
        moment = parse_time(start)
        if moment is not None:
            return Forecast(moment, nodes.strip() if nodes.strip() not in ("", "(null)") else None)
    return None


def partition(name: str) -> dict[str, str]:
    """What `scontrol show partition` says, by its own keys; empty when it says nothing."""
    return parse_fields(ask("scontrol", "-o", "show", "partition", name).strip())


def limit_of(reason: Reason, job: Mapping[str, str]) -> str | None:
    """The limit that the reason speaks of, as Slurm writes it; None where it is not readable.

    `job` are the fields of `scontrol show job`.
    """
    if reason.name in ("PartitionTimeLimit", "PartitionNodeLimit"):
        return _partition_limit(reason.name, partition(job.get("Partition", "").split(",")[0]))
    if reason.name == "JobArrayTaskLimit":
        return job.get("ArrayTaskThrottle")
    if reason.name in ("QOSMaxWallDurationPerJobLimit", "QOSTimeLimit"):
        return _first(ask("sacctmgr", "-n", "-P", "show", "qos", job["QOS"], "format=MaxWall"))
    if reason.name in ("AssocMaxWallDurationPerJobLimit", "AssociationTimeLimit"):
        where = (f"account={job['Account']}", f"user={user_of(job)}")
        return _first(ask("sacctmgr", "-n", "-P", "show", "assoc", *where, "format=MaxWall"))
    return None


def user_of(job: Mapping[str, str]) -> str | None:
    """The user's name in `UserId=ana(1000)`."""
    return job.get("UserId", "").split("(")[0] or None


def jobs_of_shard(folder: Path, run: str, shard: str, user: str) -> list[str]:
    """Jobs that Snakemake submitted in `folder` for a shard, oldest first, known by their comment.

    Ended ones are among them as long as slurmctld remembers them.
    """
    form = SEPARATOR.join(("%i", "%Z", "%k"))
    out = ask("squeue", "-h", "-r", "-t", "all", "-S", "i", "-u", user, "-o", form)
    here = os.path.realpath(folder)
    rows = [line.split(SEPARATOR, 2) for line in out.splitlines()]
    mine = [row for row in rows if len(row) == 3 and os.path.realpath(row[1]) == here]
    return [row[0].strip() for row in mine if shard_of_comment(row[2]) == (run, shard)]


def shard_of_comment(comment: str | None) -> tuple[str, str] | None:
    """Run and shard in the comment that Snakemake's Slurm executor gives a job."""
    match = _SHARD_COMMENT.search(comment or "")
    return None if match is None else (match[1], match[2])


def _partition_limit(name: str, fields: Mapping[str, str]) -> str | None:
    if name == "PartitionTimeLimit":
        return fields.get("MaxTime")
    parts = [fields.get("MinNodes"), fields.get("MaxNodes")]
    return "-".join(p for p in parts if p and p != "UNLIMITED") or None


def _first(out: str) -> str | None:
    return next((line.strip() for line in out.splitlines() if line.strip()), None)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
