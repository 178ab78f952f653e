"""Rows of `sacct -P` become one record an attempt, for every way that a job can end."""

import pytest

from helpers.slurm_answers import Answer, Recorded
from milepost.errors import SchedulerError
from milepost.slurm.command import SEPARATOR, NotHeard, replaced_by
from milepost.slurm.exitcode import ExitCode
from milepost.slurm.history import NoAccounting, history
from milepost.slurm.records import AttemptRecord, join
from milepost.slurm.sacct_text import FIELDS, FREE_TEXT, NEWER, parse_rows

HEADER = "JobID|State|ExitCode|Submit|Start|End|ElapsedRaw|NodeList"
TIMES = "2026-03-01T10:00:00|2026-03-01T10:00:10|2026-03-01T10:01:10|60|n1"
AT = 1772359200.0
"""2026-03-01T10:00:00Z."""


def attempts(*lines: str, header: str = HEADER) -> dict[str, list[AttemptRecord]]:
    return join(parse_rows("\n".join([header, *lines, ""]), separator="|"))


def only(*rows: str) -> AttemptRecord:
    """The record of job 5 from `id|state|exit` rows."""
    (found,) = attempts(*(f"{row}|{TIMES}" for row in rows))["5"]
    return found


ENDS = {
    "time limit": (
        ["5|TIMEOUT|0:0", "5.batch|CANCELLED|0:15", "5.0|CANCELLED|0:15"],
        "TIMEOUT",
        "0:0",
    ),
    "time limit seen as an exit code": (
        ["5|TIMEOUT|1:0", "5.batch|CANCELLED|0:15"],
        "TIMEOUT",
        "1:0",
    ),
    "scancel": (
        ["5|CANCELLED by 1000|0:0", "5.batch|CANCELLED|0:15", "5.0|CANCELLED|0:9"],
        "CANCELLED",
        "0:0",
    ),
    "memory of the script": (
        ["5|OUT_OF_MEMORY|0:125", "5.batch|OUT_OF_MEMORY|0:125"],
        "OUT_OF_MEMORY",
        "0:125",
    ),
    "memory of a step, the script says so": (
        ["5|FAILED|1:0", "5.batch|FAILED|1:0", "5.0|OUT_OF_MEMORY|0:125"],
        "OUT_OF_MEMORY",
        "1:0",
    ),
    "memory of a step, the script goes on": (
        ["5|COMPLETED|0:0", "5.batch|COMPLETED|0:0", "5.0|OUT_OF_MEMORY|0:125"],
        "OUT_OF_MEMORY",
        "0:0",
    ),
    "memory of a child, the script exits 0": (
        ["5|COMPLETED|0:0", "5.batch|OUT_OF_MEMORY|0:125"],
        "OUT_OF_MEMORY",
        "0:0",
    ),
    "extern holds no work": (
        ["5|COMPLETED|0:0", "5.batch|COMPLETED|0:0", "5.extern|OUT_OF_MEMORY|0:125"],
        "COMPLETED",
        "0:0",
    ),
    "killed by something else": (["5|FAILED|0:9", "5.batch|FAILED|0:9"], "FAILED", "0:9"),
    "a shell tells of a killed child": (
        ["5|FAILED|9:0", "5.batch|FAILED|9:0", "5.0|CANCELLED|0:9"],
        "FAILED",
        "9:0",
    ),
    "the same since 25.11": (["5|FAILED|137:0", "5.0|CANCELLED|0:9"], "FAILED", "137:0"),
    "node lost": (["5|NODE_FAIL|0:0", "5.batch|CANCELLED|0:15"], "NODE_FAIL", "0:0"),
    "preempted for good": (["5|PREEMPTED|0:0", "5.batch|CANCELLED|0:15"], "PREEMPTED", "0:0"),
    "no output file": (["5|FAILED|0:53", "5.batch|FAILED|0:53"], "FAILED", "0:53"),
    "a failed step that the script bears": (
        ["5|COMPLETED|0:0", "5.batch|COMPLETED|0:0", "5.0|FAILED|1:0"],
        "COMPLETED",
        "0:0",
    ),
    "cut columns": (["5|OUT_OF_ME+|0:125"], "OUT_OF_MEMORY", "0:125"),
    "memory does not hide a time limit": (
        ["5|TIMEOUT|0:0", "5.0|OUT_OF_MEMORY|0:125"],
        "TIMEOUT",
        "0:0",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_ends(end: str) -> None:
    rows, state, exit_code = ENDS[end]
    record = only(*rows)
    assert record.state.base == state
    assert record.state.is_terminal
    assert str(record.exit_code) == exit_code
    assert record.job_state.raw == rows[0].split("|")[1]
    assert [row.step for row in record.steps] == [r.split("|")[0].split(".")[1] for r in rows[1:]]
    assert (record.submit, record.start, record.end) == (AT, AT + 10, AT + 70)
    assert (record.elapsed_s, record.nodes, record.has_run) == (60.0, "n1", True)


def test_cancelled_while_pending_has_not_run() -> None:
    row = "5|CANCELLED by 0|0:0|2026-03-01T10:00:00|None|2026-03-01T10:00:30|0|None assigned"
    (record,) = attempts(row)["5"]
    assert record.state.cancelled_by == 0
    assert (record.start, record.end, record.nodes) == (None, AT + 30, None)
    assert not record.has_run


def test_node_lost_at_launch_is_cancelled_and_has_not_run() -> None:
    row = "5|CANCELLED+|0:0|2026-03-01T10:00:00|2026-03-01T10:00:05|2026-03-01T10:00:05|0|n1"
    (record,) = attempts(row)["5"]
    assert record.state.base == "CANCELLED"
    assert not record.has_run


def test_a_running_job_has_no_end() -> None:
    row = "5|RUNNING|0:0|2026-03-01T10:00:00|2026-03-01T10:00:10|2026-03-01T10:00:10|7|n1"
    (record,) = attempts(row)["5"]
    assert record.end is None
    assert not record.state.is_terminal


def test_each_attempt_has_its_own_record_and_steps() -> None:
    found = attempts(
        f"5|REQUEUED|0:0|{TIMES}",
        f"5.batch|CANCELLED|0:15|{TIMES}",
        f"5.0|CANCELLED|0:15|{TIMES}",
        "5|PREEMPTED|0:0|2026-03-01T10:01:10|2026-03-01T10:02:00|2026-03-01T10:03:00|60|n2",
        "5.batch|CANCELLED|0:15||2026-03-01T10:02:00|2026-03-01T10:03:00|60|n2",
        "5|COMPLETED|0:0|2026-03-01T10:03:00|2026-03-01T10:04:00|2026-03-01T10:05:00|60|n3",
        "5.batch|COMPLETED|0:0||2026-03-01T10:04:00|2026-03-01T10:05:00|60|n3",
        "5.0|COMPLETED|0:0||2026-03-01T10:04:00|2026-03-01T10:05:00|60|n3",
    )["5"]
    assert [(r.number, str(r.state), r.nodes) for r in found] == [
        (0, "REQUEUED", "n1"),
        (1, "PREEMPTED", "n2"),
        (2, "COMPLETED", "n3"),
    ]
    assert [len(record.steps) for record in found] == [2, 1, 2]
    assert found[0].end == AT + 70


def test_attempts_are_ordered_by_submission_whatever_the_order_of_rows() -> None:
    found = attempts(
        "5|COMPLETED|0:0|2026-03-01T10:03:00|2026-03-01T10:04:00|2026-03-01T10:05:00|60|n3",
        f"5|NODE_FAIL|0:0|{TIMES}",
    )["5"]
    assert [record.state.base for record in found] == ["NODE_FAIL", "COMPLETED"]


def test_restarts_order_attempts_where_they_are_recorded() -> None:
    header = "JobID|State|Submit|Restarts"
    found = attempts(
        "5|COMPLETED|2026-03-01T10:00:00|2", "5|PREEMPTED|2026-03-01T10:00:00|1", header=header
    )["5"]
    assert [(r.number, r.state.base) for r in found] == [(1, "PREEMPTED"), (2, "COMPLETED")]


def test_a_waiting_attempt_comes_last() -> None:
    found = attempts(
        f"5|PREEMPTED|0:0|{TIMES}", "5|PENDING|0:0|2026-03-01T10:01:11|Unknown|Unknown|0|"
    )["5"]
    assert found[-1].state.base == "PENDING"
    assert found[-1].start is None


def test_a_step_before_its_job_is_not_lost() -> None:
    record = only("5.batch|CANCELLED|0:15", "5|NODE_FAIL|0:0")
    assert [row.step for row in record.steps] == ["batch"]


def test_array_tasks_and_het_parts_are_jobs_of_their_own() -> None:
    found = attempts(
        f"10_1|TIMEOUT|0:15|{TIMES}",
        "10_[3-4%1]|CANCELLED by 1|0:0|2026-03-01T10:00:00|Unknown|Unknown|0|None assigned",
        f"20+0|COMPLETED|0:0|{TIMES}",
        f"20+1|FAILED|2:0|{TIMES}",
        f"20+1.0|FAILED|2:0|{TIMES}",
    )
    assert list(found) == ["10_1", "10_3", "10_4", "20+0", "20+1"]
    assert found["10_4"][0].state.cancelled_by == 1
    assert len(found["20+1"][0].steps) == 1


def test_memory_cpu_and_limits() -> None:
    header = (
        "JobIDRaw|JobID|State|TotalCPU|MaxRSS|ReqMem|ReqCPUS|AllocCPUS|NNodes|TimelimitRaw|"
        "DerivedExitCode|Partition|QOS|Account|Reason|JobName"
    )
    (record,) = attempts(
        "77|76_1|COMPLETED|35:45.828||8G|4|8|1|90|137:0|main|low|physics|Priority|a|b",
        "77.batch|76_1.batch|COMPLETED|35:45.800|3816K|||8|1||0:0||||None|batch",
        "77.0|76_1.0|COMPLETED|00:00.028|5.50M|||8|1||0:0||||None|x",
        header=header,
    )["76_1"]
    assert record.raw_id == "77"
    assert record.cpu_s == pytest.approx(2145.828)
    assert record.max_rss_bytes == round(5.5 * (1 << 20))
    assert record.req_mem_bytes == 8 << 30
    assert (record.req_cpus, record.cpus, record.time_limit_s) == (4, 8, 5400.0)
    assert record.derived_exit_code == ExitCode(137, 0)
    assert (record.partition, record.qos, record.account) == ("main", "low", "physics")
    assert (record.reason, record.name) == ("Priority", "a|b")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5000Mc", 4 * 5000 << 20),
        ("16000Mn", 2 * 16000 << 20),
        ("312.50G", 335544320000),
        ("0n", None),
        ("", None),
    ],
)
def test_memory_asked_for_in_every_version(text: str, size: int | None) -> None:
    (record,) = attempts(f"5|RUNNING|{text}|4|2", header="JobID|State|ReqMem|ReqCPUS|NNodes")["5"]
    assert record.req_mem_bytes == size


def test_what_was_not_recorded_is_none() -> None:
    (record,) = attempts("5|COMPLETED", header="JobID|State")["5"]
    for name in ("exit_code", "submit", "start", "end", "elapsed_s", "cpu_s", "max_rss_bytes"):
        assert getattr(record, name) is None, name
    assert (record.req_mem_bytes, record.req_cpus, record.nodes, record.reason) == (None,) * 4


def test_cpu_time_of_the_steps_when_the_job_row_has_none() -> None:
    record = attempts(
        "5|COMPLETED|",
        "5.batch|COMPLETED|00:01.500",
        "5.0|COMPLETED|00:02.000",
        "5.extern|COMPLETED|00:09.000",
        header="JobID|State|TotalCPU",
    )["5"][0]
    assert record.cpu_s == 3.5


def test_a_name_with_newlines_and_separators_moves_nothing() -> None:
    found = attempts(
        "5|COMPLETED|a|b",
        "second line",
        "6|FAILED|c",
        header="JobID|State|JobName",
    )
    assert found["5"][0].name == "a|b\nsecond line"
    assert found["6"][0].state.base == "FAILED"


def test_trailing_separators_are_no_field() -> None:
    assert attempts("5|COMPLETED|", header="JobID|State|")["5"][0].state.base == "COMPLETED"


def test_the_plain_number_serves_where_there_is_no_other_id() -> None:
    found = attempts("8|FAILED", "8.0|OUT_OF_MEMORY", header="JobIDRaw|State")
    assert found["8"][0].state.base == "OUT_OF_MEMORY"


def test_text_without_a_header_is_refused() -> None:
    with pytest.raises(SchedulerError, match="does not begin with a header"):
        parse_rows("5|COMPLETED\n", separator="|")


def sacct(*rows: dict[str, str], newer: bool = False) -> str:
    names = (*FIELDS, *(NEWER if newer else ()), *FREE_TEXT)
    lines = [SEPARATOR.join(row.get(name, "") for name in names) for row in rows]
    return "\n".join([SEPARATOR.join(names), *lines, ""])


def asked(answer: Answer | list[Answer], version: str = "slurm 22.05.8") -> Recorded:
    return Recorded({"sacct -D": answer, "sacct --version": version})


@pytest.fixture(autouse=True)
def no_version_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.slurm.version._cache", {})


def test_history_asks_by_id_with_a_start() -> None:
    recorded = asked(sacct({"JobID": "5", "JobIDRaw": "5", "State": "COMPLETED"}))
    with replaced_by(recorded):
        found = history(["5", "6"], AT)
    assert list(found) == ["5"]
    command = " ".join(recorded.asked[-1])
    assert "-j 5,6 -S 2026-03-01T09:00:00" in command
    assert "Restarts" not in command
    assert command.endswith("Reason,JobName")


def test_history_of_newer_versions_has_restarts() -> None:
    answer = sacct({"JobID": "5", "State": "COMPLETED", "Restarts": "3"}, newer=True)
    recorded = asked(answer, "slurm 25.05.1")
    with replaced_by(recorded):
        assert history(["5"], AT)["5"][0].number == 3
    assert "Restarts,SLUID,Reason" in " ".join(recorded.asked[-1])


def test_a_task_of_an_array_is_found_by_its_number() -> None:
    with replaced_by(asked(sacct({"JobID": "76_1", "JobIDRaw": "77", "State": "FAILED"}))):
        found = history(["77"], AT)
    assert found["77"] is found["76_1"]


def test_many_jobs_are_asked_for_in_batches() -> None:
    recorded = asked(
        [sacct({"JobID": "1", "State": "FAILED"}), sacct({"JobID": "401", "State": "TIMEOUT"})]
    )
    with replaced_by(recorded):
        found = history([str(i) for i in range(1, 402)], AT)
    assert set(found) == {"1", "401"}
    assert [argv[0:2] for argv in recorded.asked].count(("sacct", "-D")) == 2


@pytest.mark.parametrize(
    "answer",
    [
        (1, "", "sacct: error: Problem talking to the database: Connection refused"),
        (0, "JobID\n", "sacct: error: slurm_persist_conn_open: failed to send"),
        TimeoutError(),
        FileNotFoundError(2, "No such file"),
    ],
)
def test_a_silent_accounting_is_not_heard(answer: Answer) -> None:
    with replaced_by(asked(answer)), pytest.raises(NotHeard):
        history(["5"], AT)


def test_a_cluster_without_accounting_says_so() -> None:
    complaint = (1, "", "Slurm accounting storage is disabled\n")
    with replaced_by(asked(complaint)), pytest.raises(NoAccounting, match="keeps no accounting"):
        history(["5"], AT)
