"""A request for resources, checked before anything is submitted: `sbatch --test-only`.

Slurm refuses some requests, and accepts others that then wait for ever. Both are named here, with
the limit that binds and what to do.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milepost.errors import ConfigError
from milepost.slurm.command import failed, run
from milepost.slurm.limits import ClusterLimits, Partition, SubmitLimits, partitions
from milepost.slurm.refusals import Binding, refusal
from milepost.slurm.units import parse_time

_START = re.compile(r"to start at (\S+)")
_NOT_HEARD = re.compile(
    r"unable to contact|timed out|connect(?:ion)? (?:failure|refused)|zero bytes|"
    r"authentication (?:error|credential)|temporarily unable|communication",
    re.IGNORECASE,
)
_OPTIONS = {
    "account": "--account",
    "partition": "--partition",
    "qos": "--qos",
    "reservation": "--reservation",
    "constraint": "--constraint",
    "exclude": "--exclude",
    "nodes": "--nodes",
    "tasks": "--ntasks",
    "cpus": "--cpus-per-task",
    "gpus": "--gpus",
    "gres": "--gres",
    "array": "--array",
    "signal": "--signal",
}


@dataclass(frozen=True, slots=True)
class TestOnly:
    """What came of a test: `ok` when Slurm takes the request and no limit keeps it from starting.

    `message` is Slurm's own; `start_estimate` (seconds since the epoch) is a forecast.
    """

    __test__ = False

    ok: bool
    message: str
    start_estimate: float | None
    binds: tuple[Binding, ...]


def test_only(request: Mapping[str, Any]) -> TestOnly:
    """Ask Slurm whether it would take a job; nothing is submitted.

    Keys: account, partition, qos, reservation, constraint, exclude, nodes, tasks, cpus, gpus,
    gres, array, signal, mem_mb, mem_mb_per_cpu, runtime_s; a value of None is left out. Raises
    ConfigError for another key and NotHeard when Slurm does not answer.
    """
    said = run("sbatch", "--test-only", *options(request), "--wrap", "true")
    message = said.text()
    if said.exit_code != 0:
        if _NOT_HEARD.search(message):
            raise failed(said)
        binds = (*over_partition(request, partitions()), refusal(message))
        return TestOnly(False, message, None, binds)
    start = _START.search(message)
    binds = over_partition(request, partitions())
    return TestOnly(not binds, message, parse_time(start[1]) if start else None, binds)


test_only.__test__ = False  # type: ignore[attr-defined]


def options(request: Mapping[str, Any]) -> list[str]:
    """The request as options of sbatch. Raises ConfigError for a key that is none."""
    known = {
        **_OPTIONS,
        "mem_mb": "--mem",
        "mem_mb_per_cpu": "--mem-per-cpu",
        "runtime_s": "--time",
    }
    words = []
    for key, value in request.items():
        if key not in known:
            raise ConfigError(f"{key!r} is not a resource", fix=f"use one of {', '.join(known)}")
        if value is None:
            continue
        if key.startswith("mem_mb"):
            value = f"{value}M"
        elif key == "runtime_s":
            value = max(1, -(-int(value) // 60))
        words.append(f"{known[key]}={value}")
    return words


def over_partition(
    request: Mapping[str, Any], known: Mapping[str, Partition]
) -> tuple[Binding, ...]:
    """Limits of the partition that the request is over; such a job may wait for ever. Pure.

    Of several partitions one that fits is enough.
    """
    name = request.get("partition") or next((p.name for p in known.values() if p.is_default), None)
    names = str(name).split(",") if name else []
    found = [_over(request, known[one]) for one in names if one in known]
    return () if not found or () in found else found[0]


def over_submit(
    jobs: int, cluster: ClusterLimits, limits: Sequence[SubmitLimits], *, account: str, qos: str
) -> tuple[Binding, ...]:
    """Limits on the number of jobs that `jobs` at once would run into. Pure."""
    named = [
        limit for limit in limits if limit.name == (account if limit.kind == "association" else qos)
    ]
    most = [(f"MaxSubmitJobs of {one.kind} {one.name}", one.max_submit) for one in named]
    most += [(f"GrpSubmitJobs of {one.kind} {one.name}", one.group_submit) for one in named]
    most.append(("MaxJobCount of the cluster", cluster.max_job_count))
    return tuple(
        Binding(
            limit,
            f"{jobs} jobs at once are more than {allowed}",
            f"let Snakemake have at most {allowed} jobs at once (--jobs), or make longer shards",
        )
        for limit, allowed in most
        if allowed is not None and jobs > allowed
    )


def _over(request: Mapping[str, Any], partition: Partition) -> tuple[Binding, ...]:
    return tuple(
        binding
        for binding in (
            _over_state(partition),
            _over_names(request, partition, "qos", partition.allow_qos),
            _over_names(request, partition, "account", partition.allow_accounts),
            _over_size(request, partition, "runtime_s", partition.max_time_s, "MaxTime"),
            _over_size(request, partition, "nodes", partition.max_nodes, "MaxNodes"),
            _over_size(request, partition, "cpus", partition.cpus_per_node, "CPUs of a node"),
            _over_size(
                request, partition, "mem_mb", _mb(partition.mem_per_node_bytes), "memory of a node"
            ),
        )
        if binding is not None
    )


def _over_size(
    request: Mapping[str, Any], partition: Partition, key: str, most: float | None, limit: str
) -> Binding | None:
    wanted = request.get(key)
    if wanted is None or most is None or float(wanted) <= most:
        return None
    return Binding(
        f"partition {partition.name}, {limit}",
        f"{key} {wanted} is more than {most:g}: the job would wait for ever or be refused",
        f"ask for at most {most:g}, or name another partition",
    )


def _over_names(
    request: Mapping[str, Any], partition: Partition, key: str, allowed: tuple[str, ...] | None
) -> Binding | None:
    wanted = request.get(key)
    if wanted is None or allowed is None or wanted in allowed:
        return None
    return Binding(
        f"partition {partition.name}, {key}",
        f"{key} {wanted} may not use it",
        f"use one of {', '.join(allowed)}, or name another partition",
    )


def _over_state(partition: Partition) -> Binding | None:
    if partition.state in ("UP", ""):
        return None
    return Binding(
        f"partition {partition.name}",
        f"it is {partition.state.lower()}: nothing starts there",
        "wait until the site opens it, or name another partition",
    )


def _mb(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / (1 << 20)


def shown(request: Mapping[str, Any]) -> str:
    """The test as a command that a person can run."""
    return shlex.join(["sbatch", "--test-only", *options(request), "--wrap", "true"])
