"""What a cluster allows: its own settings, partitions and their nodes, limits of the user.

None is a limit that is not set or cannot be seen; inf one that Slurm calls unlimited.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from milepost.slurm.command import ask, failed, run
from milepost.slurm.details import parse_fields
from milepost.slurm.units import parse_count, parse_duration, parse_size
from milepost.slurm.version import Version, parse_version

_NO_ACCOUNTING = ("accounting", "slurmdbd", "not running a supported")


@dataclass(frozen=True, slots=True)
class ClusterLimits:
    """Settings of slurmctld. An index of an array must stay below `max_array_size`."""

    cluster: str
    version: Version | None
    max_array_size: int | None
    max_job_count: int | None
    min_job_age_s: float | None
    kill_wait_s: float | None
    over_time_limit_s: float | None
    max_batch_requeue: int | None
    can_requeue: bool
    preempt_mode: str
    has_accounting: bool
    refuses_over_partition: bool
    """EnforcePartLimits: a job over a partition's limits is refused; else it waits for ever."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, with the largest node that it has."""

    name: str
    is_default: bool
    state: str
    max_time_s: float | None
    default_time_s: float | None
    max_nodes: int | None
    nodes: int | None
    cpus_per_node: int | None
    mem_per_node_bytes: int | None
    mem_per_cpu_bytes: int | None
    grace_s: float | None
    preempt_mode: str
    allow_qos: tuple[str, ...] | None
    allow_accounts: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class SubmitLimits:
    """How many jobs a user may have through an association or a QOS (`kind`)."""

    kind: str
    name: str
    max_submit: int | None
    max_jobs: int | None
    group_submit: int | None
    max_time_s: float | None
    qos: tuple[str, ...] = ()
    default_qos: str = ""


def cluster_limits() -> ClusterLimits:
    """The settings of slurmctld, by `scontrol show config`. Raises NotHeard."""
    found: dict[str, str] = {}
    for line in ask("scontrol", "show", "config").splitlines():
        key, equals, value = line.partition("=")
        if equals:
            found.setdefault(key.strip(), value.strip())
    return ClusterLimits(
        cluster=found.get("ClusterName", ""),
        version=parse_version(found.get("SLURM_VERSION", "")),
        max_array_size=parse_count(found.get("MaxArraySize", "")),
        max_job_count=parse_count(found.get("MaxJobCount", "")),
        min_job_age_s=_number(found.get("MinJobAge")),
        kill_wait_s=_number(found.get("KillWait")),
        over_time_limit_s=_minutes(found.get("OverTimeLimit")),
        max_batch_requeue=parse_count(found.get("MaxBatchRequeue", "")),
        can_requeue=found.get("JobRequeue") == "1",
        preempt_mode=found.get("PreemptMode", ""),
        has_accounting="slurmdbd" in found.get("AccountingStorageType", ""),
        refuses_over_partition=found.get("EnforcePartLimits", "NO") not in ("NO", "0"),
    )


def partitions() -> dict[str, Partition]:
    """Every partition that the user may see, with its largest node. Raises NotHeard."""
    largest = _largest_nodes(ask("scontrol", "show", "node", "-o").splitlines())
    shown = ask("scontrol", "show", "partition", "-o").splitlines()
    records = [parse_fields(line) for line in shown if line.startswith("PartitionName=")]
    return {one["PartitionName"]: _partition(one, largest) for one in records}


def submit_limits(user: str | None = None) -> list[SubmitLimits] | None:
    """Limits of the user's associations and of the QOS they may use.

    None where there is no accounting to ask. Raises NotHeard when sacctmgr fails otherwise.
    """
    who = user or getpass.getuser()
    rows = _sacctmgr(
        *("assoc", "where", f"user={who}"),
        fields=("Account", "MaxSubmit", "MaxJobs", "GrpSubmit", "MaxWall", "QOS", "DefaultQOS"),
    )
    if rows is None:
        return None
    found = [_association(row) for row in rows]
    fields = ("Name", "MaxSubmitPU", "MaxJobsPU", "GrpSubmit", "MaxWall")
    usable = {name for association in found for name in association.qos}
    for name, submit, jobs, group, wall in _sacctmgr("qos", fields=fields) or []:
        if name in usable:
            limits = (parse_count(submit), parse_count(jobs), parse_count(group))
            found.append(SubmitLimits("QOS", name, *limits, parse_duration(wall)))
    return found


def _sacctmgr(*what: str, fields: tuple[str, ...]) -> list[list[str]] | None:
    said = run("sacctmgr", "-n", "-P", "-r", "show", *what, f"format={','.join(fields)}")
    if said.exit_code != 0 or "error:" in said.err:
        if any(word in said.text().lower() for word in _NO_ACCOUNTING):
            return None
        raise failed(said)
    rows = [line.split("|") for line in said.out.splitlines()]
    return [row for row in rows if len(row) == len(fields)]


def _association(row: list[str]) -> SubmitLimits:
    account, submit, jobs, group, wall, qos, default = row
    return SubmitLimits(
        "association",
        account,
        parse_count(submit),
        parse_count(jobs),
        parse_count(group),
        parse_duration(wall),
        tuple(name for name in qos.split(",") if name),
        default,
    )


def _largest_nodes(lines: Iterable[str]) -> dict[str, tuple[int, int]]:
    """CPUs of the node with most CPUs, and bytes of the one with most memory, by partition."""
    largest: dict[str, tuple[int, int]] = {}
    for line in lines:
        node = parse_fields(line)
        cpus = parse_count(node.get("CPUEfctv", "")) or parse_count(node.get("CPUTot", "")) or 0
        size = parse_size(node.get("RealMemory", ""), unit="M") or 0
        for name in filter(None, node.get("Partitions", "").split(",")):
            known = largest.get(name, (0, 0))
            largest[name] = (max(known[0], cpus), max(known[1], size))
    return largest


def _partition(fields: Mapping[str, str], largest: Mapping[str, tuple[int, int]]) -> Partition:
    name = fields["PartitionName"]
    cpus, size = largest.get(name, (0, 0))
    capped_cpus = parse_count(fields.get("MaxCPUsPerNode", ""))
    capped_size = parse_size(fields.get("MaxMemPerNode", ""), unit="M")
    return Partition(
        name=name,
        is_default=fields.get("Default") == "YES",
        state=fields.get("State", ""),
        max_time_s=parse_duration(fields.get("MaxTime", "")),
        default_time_s=parse_duration(fields.get("DefaultTime", "")),
        max_nodes=parse_count(fields.get("MaxNodes", "")),
        nodes=parse_count(fields.get("TotalNodes", "")),
        cpus_per_node=_least(cpus, capped_cpus),
        mem_per_node_bytes=_least(size, capped_size),
        mem_per_cpu_bytes=parse_size(fields.get("MaxMemPerCPU", ""), unit="M"),
        grace_s=_number(fields.get("GraceTime")),
        preempt_mode=fields.get("PreemptMode", ""),
        allow_qos=_names(fields.get("AllowQos")),
        allow_accounts=_names(fields.get("AllowAccounts")),
    )


def _names(text: str | None) -> tuple[str, ...] | None:
    """None: all are allowed."""
    return None if text in (None, "", "ALL", "(null)") else tuple(str(text).split(","))


def _least(*values: int | None) -> int | None:
    known = [value for value in values if value]
    return min(known) if known else None


def _number(text: str | None) -> float | None:
    """The number of `30 sec`."""
    value = parse_count(text or "")
    return None if value is None else float(value)


def _minutes(text: str | None) -> float | None:
    value = _number(text)
    return None if value is None else value * 60.0
