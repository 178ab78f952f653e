"""What counts as a failure, a preemption or only as time: accounting, attempts, and both."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.clock import iso
from milepost.planner.accounting import read_rows
from milepost.planner.exposure import End
from milepost.planner.history import History, how_it_ended, read_history
from milepost.slurm.past import PastJobs
from milepost.slurm.sacct_text import PAST, parse_rows

DAY = 86400.0
HOUR = 3600.0
NOW = 1772359200.0
"""2026-03-01T10:00:00Z."""

HEADER = "|".join(PAST)
# what `sacct -D -X -P` prints: ended well, requeued after a lost node (two rows of one job),
# preempted and back in the queue, an array, a heterogeneous job, and ends that are nobody's fault
TEXT = f"""{HEADER}
100|100|COMPLETED|2026-02-20T00:00:00|2026-02-20T00:00:00|2026-02-20T10:00:00|36000|4|billing=64,cpu=64,gres/gpu=8,gres/gpu:a100=8,mem=1T,node=4|gpu|normal
101|101|NODE_FAIL|2026-02-21T00:00:00|2026-02-21T00:00:00|2026-02-21T05:00:00|18000|2|cpu=8,mem=4G,node=2|main|normal
101|101|COMPLETED|2026-02-21T05:00:01|2026-02-21T06:00:00|2026-02-21T11:00:00|18000|2|cpu=8,mem=4G,node=2|main|normal
102|102|PREEMPTED|2026-02-22T00:00:00|2026-02-22T00:00:00|2026-02-22T03:00:00|10800|1|cpu=4,node=1|spare|low
102|102|PENDING|2026-02-22T03:00:00|Unknown|Unknown|0|1||spare|low
103|103|FAILED|2026-02-22T00:00:00|2026-02-22T00:00:00|2026-02-22T01:00:00|3600|1|cpu=4,node=1|spare|low
104|104|CANCELLED by 1000|2026-02-22T00:00:00|2026-02-22T00:00:00|2026-02-22T01:00:00|3600|1|cpu=4,node=1|main|normal
105|105|CANCELLED by 1000|2026-02-22T00:00:00|Unknown|2026-02-22T01:00:00|0|1||main|normal
106|106|TIMEOUT|2026-02-22T00:00:00|2026-02-22T00:00:00|2026-02-22T02:00:00|7200|1|cpu=4,node=1|main|normal
107_1|107|OUT_OF_MEMORY|2026-02-23T00:00:00|2026-02-23T00:00:00|2026-02-23T01:00:00|3600|1|cpu=1,node=1|main|normal
107_2|108|COMPLETED|2026-02-23T00:00:00|2026-02-23T00:00:00|2026-02-23T01:00:00|3600|1|cpu=1,node=1|main|normal
107_[3-4%1]|107|PENDING|2026-02-23T00:00:00|Unknown|Unknown|0|1||main|normal
109+0|109|NODE_FAIL|2026-02-24T00:00:00|2026-02-24T00:00:00|2026-02-24T01:00:00|3600|1|cpu=1,node=1|main|normal
109+1|110|NODE_FAIL|2026-02-24T00:00:00|2026-02-24T00:00:00|2026-02-24T01:00:05|3605|3|cpu=3,node=3|main|normal
111|111|RUNNING|2026-03-01T08:00:00|2026-03-01T08:00:00|Unknown|7200|1|cpu=4,node=1|main|normal
112|112|BOOT_FAIL|2026-02-25T00:00:00|2026-02-25T00:00:00|2026-02-25T00:10:00|600|1|cpu=4,node=1|main|normal
113|113|REQUEUED|2026-02-25T00:00:00|2026-02-25T00:00:00|2026-02-25T01:00:00|3600|1|cpu=4,node=1|main|normal
"""


def jobs(text: str = TEXT, now: float = NOW) -> PastJobs:
    return PastJobs(now - 90 * DAY, now, tuple(parse_rows(text, separator="|")))


def test_each_execution_counts_once_as_what_it_was() -> None:
    found = {}
    for row, span in read_rows(jobs().rows, NOW):
        found.setdefault(row.job_id, []).append((span.end, span.nodes, span.seconds))
    failure, preemption, censored = End.FAILURE, End.PREEMPTION, End.CENSORED
    assert found == {
        "100": [(censored, 4, 36000.0)],
        "101": [(failure, 2, 18000.0), (censored, 2, 18000.0)],
        "102": [(preemption, 1, 10800.0)],
        "103": [(censored, 1, 3600.0)],
        "104": [(censored, 1, 3600.0)],
        "106": [(censored, 1, 7200.0)],
        "107_1": [(censored, 1, 3600.0)],
        "107_2": [(censored, 1, 3600.0)],
        "109+0": [(failure, 1, 3600.0)],
        "109+1": [(censored, 3, 3605.0)],
        "111": [(censored, 1, 7200.0)],
        "112": [(failure, 1, 600.0)],
        "113": [(censored, 1, 3600.0)],
    }


def test_steps_and_doubled_rows_change_nothing() -> None:
    lines = TEXT.splitlines()
    step = lines[2].replace("101|101|NODE_FAIL", "101.batch|101.batch|CANCELLED")
    doubled = "\n".join([*lines, step, lines[2], lines[1]]) + "\n"
    assert dict_of(read_history((), jobs(doubled))) == dict_of(read_history((), jobs()))


def dict_of(history: History) -> list[Any]:
    return [(source.name, source.tally) for source in history.sources]


def test_exposure_in_node_hours_and_gpu_hours() -> None:
    tally = read_history((), jobs()).sources[0].tally
    assert tally.executions == 14
    assert tally.failures == {1: 2, 2: 1}
    assert tally.preemptions == 1
    job_s = 36000 + 2 * 18000 + 10800 + 3 * 3600 + 7200 + 2 * 3600 + 3605 + 7200 + 600 + 3600
    assert tally.job_s == job_s
    assert tally.node_s == job_s + 3 * 36000 + 2 * 18000 + 2 * 3605
    assert tally.gpu_s == 8 * 36000
    assert tally.preemptible_s == 10800 + 3600  # the partition and QOS where it happened


def test_only_the_last_days_count() -> None:
    history = read_history((), jobs(), window_days=6.0)  # since 2026-02-23T10:00Z
    assert history.sources[0].tally.failures == {1: 2}
    assert history.sources[0].tally.preemptions == 0
    assert read_history((), jobs(now=NOW + 200 * DAY), 90.0).sources[0].tally.failures == {}


def attempt(stop: str | None, hours: float = 1.0, **more: Any) -> dict[str, Any]:
    began = more.pop("began", NOW)
    record = {
        "attempt": 1,
        "stop": stop,
        "started": iso(began),
        "ended": None if stop is None else iso(began + hours * HOUR),
    }
    if stop is None:
        record["last_sign"] = iso(began + hours * HOUR)
    return record | more


def finding(action: str, subclass: str = "x") -> dict[str, str]:
    return {"action": action, "subclass": subclass}


@pytest.mark.parametrize(
    ("record", "end"),
    [
        (attempt("done"), End.CENSORED),
        (attempt("walltime"), End.CENSORED),
        (attempt("signal URG"), End.CENSORED),
        (attempt("signal INT"), End.CENSORED),
        (attempt("cancelled"), End.CENSORED),
        (attempt("signal TERM"), End.PREEMPTION),
        (attempt("signal TERM", then="requeued: its walltime ends"), End.CENSORED),
        (attempt("signal TERM", then="requeued: its time limit is reached"), End.CENSORED),
        (attempt("signal TERM", then="requeued: it was preempted"), End.PREEMPTION),
        (attempt("failed", finding=finding("fix_no_retry")), End.CENSORED),
        (attempt("failed", finding=finding("retry_more_memory")), End.CENSORED),
        (attempt("failed", finding=finding("retry_same")), End.FAILURE),
        (attempt("error", finding=finding("resume_from_checkpoint")), End.FAILURE),
        (attempt(None), End.FAILURE),
        (attempt(None, running=True), End.CENSORED),
        (attempt("Slurm says NODE_FAIL", finding=finding("retry_same", "node_fail")), End.FAILURE),
        (
            attempt("Slurm says PREEMPTED", finding=finding("resume_from_checkpoint", "preempted")),
            End.PREEMPTION,
        ),
        (attempt("Slurm says TIMEOUT", finding=finding("longer_walltime")), End.CENSORED),
    ],
)
def test_how_attempts_ended(record: dict[str, Any], end: End) -> None:
    assert how_it_ended(record) is end


def test_attempts_alone() -> None:
    history = read_history([attempt("done", 2), attempt(None, 3), attempt("signal TERM", 1), {}])
    (accounting, own) = history.sources
    assert (accounting.tally.executions, accounting.said) == (0, "not asked")
    assert own.tally.failures == {1: 1}
    assert own.tally.preemptions == 1
    assert own.tally.job_s == 6 * HOUR


def test_an_attempt_in_a_listed_job_counts_once_and_with_its_nodes() -> None:
    lost = attempt(None, 5, began=NOW - 8 * DAY - 10 * HOUR, slurm_job_id="101")
    elsewhere = attempt("done", 5, slurm_job_id="900", began=NOW - HOUR)
    history = read_history([lost, elsewhere], jobs())
    accounting, own = history.sources
    assert own.tally.executions == 3  # two executions of job 101, and one nobody lists
    assert own.tally.failures == {2: 1}
    assert accounting.tally.failures == {1: 2}
    assert accounting.tally.executions == 12


def test_what_the_attempt_said_counts_where_slurm_only_knows_an_end() -> None:
    """It lost its storage (Slurm: FAILED), or requeued itself when it was preempted."""
    began = NOW - 7 * DAY - 10 * HOUR  # 2026-02-22T00:00Z
    broken = attempt("error", slurm_job_id="103", began=began, finding=finding("retry_same"))
    told = {"then": "requeued: it was preempted"}
    back = attempt("signal TERM", slurm_job_id="113", began=began + 3 * DAY, **told)
    own = read_history([broken, back], jobs()).sources[1].tally
    assert own.failures == {1: 1}
    assert own.preemptions == 1


def test_an_accounting_that_was_not_heard_is_said_and_nothing_else() -> None:
    deaf = PastJobs(0.0, NOW + 400 * DAY, complaint="slurmdbd is away")
    history = read_history([attempt(None, 2)], deaf)
    assert history.sources[0].said == "not heard: slurmdbd is away"
    assert history.sources[0].tally.executions == 0
    assert history.sources[1].tally.failures == {1: 1}
