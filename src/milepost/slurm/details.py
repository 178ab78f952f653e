"""One job in full, as slurmctld has it: `scontrol show job`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from milepost.slurm.command import failed, run
from milepost.slurm.exitcode import ExitCode, parse_exit_code
from milepost.slurm.jobids import checked
from milepost.slurm.reasons import Reason, parse_reason
from milepost.slurm.states import State, parse_state
from milepost.slurm.units import parse_count, parse_duration, parse_time

UNKNOWN_JOB = "Invalid job id specified"
_KEY = re.compile(r"(?:^| )([A-Z][A-Za-z]*(?:[/:][A-Za-z][A-Za-z/:]*)?)=")
_NAME = re.compile(r" JobName=(.*?)(?= UserId=\S*\(\d+\) GroupId=)", re.DOTALL)
_FREE_TEXT = frozenset(
    ["Comment", "AdminComment", "SystemComment", "Extra", "Command", "SubmitLine", "WorkDir"]
)
_AFTER_FREE_TEXT = frozenset(
    [
        *_FREE_TEXT,
        *("StdErr", "StdIn", "StdOut", "Power", "BurstBuffer", "BatchFeatures"),
        *("TresPerJob", "TresPerNode", "TresPerSocket", "TresPerTask", "TresBind", "TresFreq"),
        *("CpusPerTres", "MemPerTres", "NtasksPerTRES", "MailUser", "MailType"),
    ]
)


@dataclass(frozen=True, slots=True)
class JobDetails:
    """A job as `scontrol show job` prints it; `fields` has everything, as text."""

    job_id: str
    state: State
    reason: Reason
    exit_code: ExitCode | None
    restarts: int | None
    is_batch: bool
    can_requeue: bool
    submit: float | None
    start: float | None
    end: float | None
    time_limit_s: float | None
    preempt_time: float | None
    nodes: str | None
    partition: str
    work_dir: str | None
    comment: str | None
    fields: Mapping[str, str] = field(default_factory=dict, repr=False)


def job_details(job_id: str) -> JobDetails | None:
    """One job in full, or None when slurmctld does not know it (any more).

    Raises NotHeard when scontrol fails for another reason.
    """
    (job,) = checked([job_id])
    said = run("scontrol", "show", "job", "-o", job)
    if said.exit_code != 0:
        if UNKNOWN_JOB in said.err + said.out:
            return None
        raise failed(said)
    lines = [line for line in said.out.split("\nJobId=") if line.strip()]
    records = [parse_fields(line if i == 0 else f"JobId={line}") for i, line in enumerate(lines)]
    if not records:
        return None
    exact = [r for r in records if job in (r.get("JobId"), _array_id(r))]
    return _details((exact or records)[0])


def parse_fields(line: str) -> dict[str, str]:
    """`Key=value` pairs of a line of `scontrol show job -o`; values may hold blanks and `=`.

    A job name or a comment can hold what looks like a pair. The name ends where Slurm's own user
    id follows; after it, the first of two equal keys counts, since comments come last.
    """
    found: dict[str, str] = {}
    named = _NAME.search(line)
    if named is not None:
        found["JobName"] = named[1]
        line = line[: named.start()] + line[named.end(1) :]
    key, start = "", 0
    for match in _KEY.finditer(line):
        if key in _FREE_TEXT and match[1] not in _AFTER_FREE_TEXT:
            continue
        found.setdefault(key, line[start : match.start()].strip())
        key, start = match[1], match.end()
    found.setdefault(key, line[start:].strip())
    found.pop("", None)
    return found


def _array_id(record: Mapping[str, str]) -> str:
    return f"{record.get('ArrayJobId', '')}_{record.get('ArrayTaskId', '')}"


def _details(fields: Mapping[str, str]) -> JobDetails:
    def text(key: str) -> str | None:
        value = fields.get(key, "")
        return value if value not in ("", "(null)", "N/A") else None

    return JobDetails(
        job_id=fields["JobId"],
        state=parse_state(fields.get("JobState", "")),
        reason=parse_reason(fields.get("Reason", "")),
        exit_code=parse_exit_code(fields.get("ExitCode", "")),
        restarts=parse_count(fields.get("Restarts", "")),
        is_batch=fields.get("BatchFlag", "0") != "0",
        can_requeue=fields.get("Requeue") == "1",
        submit=parse_time(fields.get("SubmitTime", "")),
        start=parse_time(fields.get("StartTime", "")),
        end=parse_time(fields.get("EndTime", "")),
        time_limit_s=parse_duration(fields.get("TimeLimit", "")),
        preempt_time=parse_time(fields.get("PreemptTime", "")),
        nodes=text("NodeList"),
        partition=fields.get("Partition", ""),
        work_dir=text("WorkDir"),
        comment=text("Comment"),
        fields=fields,
    )
