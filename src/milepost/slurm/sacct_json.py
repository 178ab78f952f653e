"""Read `sacct --json`, from Slurm 21.08 to 25.11: three layouts, told apart value by value.

21.08 and 22.05 print bare numbers, words and nulls; 23.02 prints {set, infinite, number} for some
numbers; 23.11 and later for nearly all, and lists of words for states. Times are seconds since
the epoch, memory is in MB, exit codes are whole (nothing is taken off). Seen with 22.05: each
exit code that is no signal is printed as a success of 0, also that of a FAILED job, so such a code
counts as not recorded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from milepost.errors import SchedulerError
from milepost.slurm.exitcode import ExitCode
from milepost.slurm.jobids import expand, parse_job_id
from milepost.slurm.records import Row
from milepost.slurm.states import State, parse_state

_MIB = 1 << 20
_PER_CPU = 1 << 63
"""Up to 22.05 this bit of the memory says that it is for each CPU."""
_NOWHERE = (None, "", "None assigned", "None")
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of an answer of sacct, and the version of the Slurm that gave it."""

    rows: tuple[Row, ...]
    version: tuple[int, int] | None


def parse_json(text: str) -> Answer:
    """Read an answer; warnings may stand before it. Raises SchedulerError when it is none."""
    start = text.find("{")
    try:
        answer = json.loads(text[max(start, 0) :])
        rows = tuple(row for job in answer["jobs"] for row in _rows(job))
        return Answer(rows, _version(answer.get("meta") or {}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SchedulerError(
            f"does not print the JSON of an accounting record ({error!r})",
            where="sacct --json",
            fix="ask without --json, and report this version of Slurm",
        ) from error


def number(value: Any) -> int | float | None:
    """A number in any layout; inf where it has no limit, None where it is not set."""
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return math.inf
        return number(value.get("number")) if value.get("set", True) else None
    if isinstance(value, str):
        return int(value) if value.lstrip("-").isdigit() else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _rows(job: Json) -> Iterator[Row]:
    for job_id in expand(_job_id(job)):
        row = _job_row(job_id, job)
        yield row
        for step in job.get("steps") or ():
            yield _step_row(row, step)


def _job_id(job: Json) -> str:
    array, het = job.get("array") or {}, job.get("het") or {}
    if number(array.get("job_id")):
        task = number(array.get("task_id"))
        waiting = str(array.get("task") or "")
        if task is not None and not waiting:
            return f"{array['job_id']}_{task}"
        if waiting:
            return f"{array['job_id']}_[{waiting.strip('[]')}]"
    offset = number(het.get("job_offset"))
    if number(het.get("job_id")) and offset is not None:
        return f"{het['job_id']}+{offset}"
    return str(job["job_id"])


def _job_row(job_id: str, job: Json) -> Row:
    times, required, tres = job["time"], job.get("required") or {}, job.get("tres") or {}
    limit = number(times.get("limit"))
    req_cpus, nodes = _count(required.get("CPUs")), job.get("nodes")
    reason, state = job["state"].get("reason"), parse_state(job["state"]["current"])
    return Row(
        job_id=job_id,
        raw_id=str(job["job_id"]),
        step=None,
        state=state,
        exit_code=_believed(_exit_code(job.get("exit_code")), state),
        derived_exit_code=_exit_code(job.get("derived_exit_code")),
        submit=_moment(times.get("submission")),
        eligible=_moment(times.get("eligible")),
        start=_moment(times.get("start")),
        end=_moment(times.get("end")),
        elapsed_s=_seconds(times.get("elapsed")),
        cpu_s=_cpu_s(times),
        req_mem_bytes=_req_mem(tres, required, req_cpus, _count(job.get("allocation_nodes"))),
        req_cpus=req_cpus,
        cpus=_tres(tres.get("allocated"), "cpu"),
        time_limit_s=None if limit is None else limit * 60.0,
        nodes=None if nodes in _NOWHERE else nodes,
        partition=job.get("partition") or "",
        qos=job.get("qos") or "",
        account=job.get("account") or "",
        reason=None if reason in _NOWHERE else reason,
        name=job.get("name") or "",
        restarts=_count(job.get("restart_cnt")),
    )


def _step_row(job: Row, step: Json) -> Row:
    times = step["time"]
    used = ((step.get("tres") or {}).get("requested") or {}).get("max")
    nodes = (step.get("nodes") or {}).get("range")
    state = parse_state(step["state"])
    return Row(
        job_id=job.job_id,
        raw_id=job.raw_id,
        step=_step_name(step.get("step") or {}),
        state=state,
        exit_code=_believed(_exit_code(step.get("exit_code")), state),
        start=_moment(times.get("start")),
        end=_moment(times.get("end")),
        elapsed_s=_seconds(times.get("elapsed")),
        cpu_s=_cpu_s(times),
        max_rss_bytes=_tres(used, "mem"),
        cpus=_tres((step.get("tres") or {}).get("allocated"), "cpu"),
        nodes=None if nodes in _NOWHERE else nodes,
        account=job.account,
        name=(step.get("step") or {}).get("name") or "",
    )


def _step_name(step: Json) -> str:
    """`batch` or `0`: from the id as an object, a word, a number or `123.batch`."""
    value = step.get("id")
    if isinstance(value, Mapping):
        value = value.get("step_id", value.get("id"))
    text = str(step.get("name") if value is None else value)
    return parse_job_id(text).step or text if "." in text else text


def _exit_code(value: Any) -> ExitCode | None:
    """None when nothing was recorded; a job that was killed has no return code but a signal."""
    if not isinstance(value, Mapping):
        return None
    signal = value.get("signal") or {}
    killer = number(signal.get("signal_id", signal.get("id")))
    code = number(value.get("return_code"))
    if code is None and killer is None:
        return None
    return ExitCode(int(code or 0), int(killer or 0))


def _believed(exit_code: ExitCode | None, state: State) -> ExitCode | None:
    return None if state.base == "FAILED" and exit_code == ExitCode(0, 0) else exit_code


def _moment(value: Any) -> float | None:
    found = number(value)
    return float(found) if found else None


def _seconds(value: Any) -> float | None:
    found = number(value)
    return None if found is None else float(found)


def _count(value: Any) -> int | None:
    found = number(value)
    return None if found is None or math.isinf(found) else int(found)


def _cpu_s(times: Json) -> float | None:
    total = times.get("total") or {}
    seconds, micro = number(total.get("seconds")), number(total.get("microseconds"))
    return (seconds or 0) + (micro or 0) / 1e6 or None


def _tres(listed: Any, kind: str) -> int | None:
    """The count of a kind; 0 and less mean that it was not gathered."""
    for entry in listed or ():
        if entry.get("type") == kind:
            count = _count(entry.get("count"))
            return count if count is not None and count > 0 else None
    return None


def _req_mem(tres: Json, required: Json, cpus: int | None, nodes: int | None) -> int | None:
    total = _tres(tres.get("requested"), "mem")
    if total is not None:
        return total * _MIB
    per_cpu, per_node = _count(required.get("memory_per_cpu")), _count(required.get("memory"))
    if per_node is not None and per_node & _PER_CPU:
        per_cpu, per_node = per_node & ~_PER_CPU, None
    per_node = per_node or _count(required.get("memory_per_node"))
    if per_cpu:
        return per_cpu * (cpus or 1) * _MIB
    return per_node * (nodes or 1) * _MIB if per_node else None


def _version(meta: Json) -> tuple[int, int] | None:
    slurm = meta.get("slurm") or meta.get("Slurm") or {}
    version = slurm.get("version") or {}
    major, minor = number(version.get("major")), number(version.get("minor"))
    return None if major is None or minor is None else (int(major), int(minor))
