"""Read `sacct -P`: one row a line, fields between a separator, the free text last."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from milepost.errors import SchedulerError
from milepost.slurm.command import SEPARATOR
from milepost.slurm.exitcode import parse_exit_code
from milepost.slurm.jobids import expand, parse_job_id
from milepost.slurm.records import Row
from milepost.slurm.states import parse_state
from milepost.slurm.units import (
    parse_count,
    parse_duration,
    parse_minutes,
    parse_size,
    parse_time,
)

FIELDS = (
    *("JobID", "JobIDRaw", "State", "ExitCode", "DerivedExitCode"),
    *("Submit", "Eligible", "Start", "End", "ElapsedRaw", "TotalCPU", "MaxRSS"),
    *("ReqMem", "ReqCPUS", "AllocCPUS", "NNodes", "TimelimitRaw", "NodeList"),
    *("Partition", "QOS", "Account"),
)
PAST = (
    *("JobID", "JobIDRaw", "State", "Submit", "Start", "End", "ElapsedRaw"),
    *("NNodes", "AllocTRES", "Partition", "QOS"),
)
"""What is asked about all jobs of a window of time."""
FREE_TEXT = ("Reason", "JobName")
"""Last, so that nothing that a user wrote can move the other fields."""
NEWER = ("Restarts", "SLUID")
"""Since Slurm 24.11."""
_REQ_MEM = re.compile(r"([\d.]+[KMGTPE]?)([cn]?)")
_NOWHERE = frozenset(["", "None assigned", "None", "(null)", "Unknown"])


def parse_rows(text: str, separator: str = SEPARATOR) -> list[Row]:
    """Rows of `sacct -D -P` with its header line; what was not asked for is None.

    A job name may hold newlines and, in foreign output, the separator. Raises SchedulerError when
    there is no header.
    """
    lines = text.split("\n")
    names = [name.strip().lower() for name in lines[0].split(separator)]
    if "state" not in names or not {"jobid", "jobidraw"} & set(names):
        raise SchedulerError(
            f"does not begin with a header that has JobID and State: {lines[0][:80]!r}",
            where="sacct",
            fix="print it with sacct -D -P -o JobID,State,… and without -n",
        )
    rows: list[Row] = []
    for values in _records(lines[1:], len(names), separator):
        rows.extend(_rows(dict(zip(names, values, strict=False))))
    return rows


def _records(lines: list[str], width: int, separator: str) -> Iterator[list[str]]:
    """Lines cut into fields; a line that cannot begin a record goes on with the last field."""
    record: list[str] = []
    for line in lines:
        values = line.split(separator, width - 1)
        if len(values) == width:
            if record:
                yield record
            record = values
        elif record and line:
            record[-1] += "\n" + line
    if record:
        yield record


def _rows(values: Mapping[str, str]) -> list[Row]:
    job_id = parse_job_id(values.get("jobid") or values["jobidraw"])
    row = _row(job_id.job, job_id.step, {key: value.strip() for key, value in values.items()})
    return [row if one == row.job_id else _row(one, row.step, values) for one in expand(job_id.job)]


def _row(job_id: str, step: str | None, values: Mapping[str, str]) -> Row:
    def get(name: str) -> str:
        return values.get(name, "").strip()

    nodes = get("nodelist")
    return Row(
        job_id=job_id,
        raw_id=get("jobidraw").split(".")[0] or job_id,
        step=step,
        state=parse_state(get("state")),
        exit_code=parse_exit_code(get("exitcode")),
        derived_exit_code=parse_exit_code(get("derivedexitcode")),
        submit=parse_time(get("submit")),
        eligible=parse_time(get("eligible")),
        start=parse_time(get("start")),
        end=parse_time(get("end")),
        elapsed_s=_elapsed_s(values),
        cpu_s=parse_duration(get("totalcpu")),
        max_rss_bytes=parse_size(get("maxrss")) or None,
        req_mem_bytes=_req_mem(values),
        req_cpus=parse_count(get("reqcpus")),
        cpus=parse_count(get("alloccpus")) or None,
        time_limit_s=parse_minutes(get("timelimitraw") or get("timelimit")),
        nodes=None if nodes in _NOWHERE else nodes,
        partition=get("partition"),
        qos=get("qos"),
        account=get("account"),
        reason=None if get("reason") in _NOWHERE else get("reason"),
        name=values.get("jobname", ""),
        restarts=parse_count(get("restarts")),
        node_count=parse_count(get("nnodes")) or None,
        gpu_count=_gpu_count(get("alloctres")),
    )


def _gpu_count(tres: str) -> int | None:
    """GPUs of `cpu=5,gres/gpu=2,gres/gpu:v100=2,node=1`: those named by type are the same ones.

    None where nothing was allocated.
    """
    if not tres:
        return None
    counts = dict(one.split("=", 1) for one in tres.split(",") if "=" in one)
    if "gres/gpu" in counts:
        return parse_count(counts["gres/gpu"])
    typed = [parse_count(value) for name, value in counts.items() if name.startswith("gres/gpu:")]
    return sum(value or 0 for value in typed)


def _elapsed_s(values: Mapping[str, str]) -> float | None:
    raw = parse_count(values.get("elapsedraw", ""))
    return float(raw) if raw is not None else parse_duration(values.get("elapsed", ""))


def _req_mem(values: Mapping[str, str]) -> int | None:
    """Bytes asked for. Up to 20.11 `5000Mc` is for each CPU and `16000Mn` for each node."""
    match = _REQ_MEM.fullmatch(values.get("reqmem", "").strip())
    if match is None:
        return None
    size = parse_size(match[1], unit="M")
    count = {"c": "reqcpus", "n": "nnodes", "": ""}[match[2]]
    factor = parse_count(values.get(count, "")) or 1
    return size * factor if size else None
