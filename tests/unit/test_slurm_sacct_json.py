"""The JSON of sacct in the layout of every version says the same as its text."""

import json
import math
from typing import Any

import pytest

from milepost.errors import SchedulerError
from milepost.slurm.exitcode import ExitCode
from milepost.slurm.records import AttemptRecord, join
from milepost.slurm.sacct_json import number, parse_json

SUBMIT, START, END = 1_700_000_000, 1_700_000_100, 1_700_000_160


def opt(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def tres(**counts: int) -> list[dict[str, Any]]:
    return [
        {"type": kind, "name": "", "id": i, "count": count}
        for i, (kind, count) in enumerate(counts.items())
    ]


def times(cpu_micro: int, limit: Any, step: bool = False, newest: bool = False) -> dict[str, Any]:
    moments = {"start": START, "end": END}
    wrapped: dict[str, Any] = {k: opt(v) for k, v in moments.items()} if newest else moments
    return {
        "elapsed": 60,
        **({} if step else {"eligible": SUBMIT, "submission": SUBMIT, "limit": limit}),
        **(wrapped if step else moments),
        "total": {"seconds": 1, "microseconds": cpu_micro},
    }


def layout_21_08() -> dict[str, Any]:
    """Bare numbers, words, nulls; dbv0.0.37 and dbv0.0.38."""
    step = {
        "time": times(500_000, None, step=True),
        "state": "OUT_OF_MEMORY",
        "exit_code": {
            "status": "SIGNALED",
            "return_code": None,
            "signal": {"signal_id": 125, "name": "Unknown"},
        },
        "nodes": {"count": 1, "range": "n1", "list": ["n1"]},
        "step": {"job_id": 5, "het": {"component": None}, "id": 0, "name": "solver"},
        "tres": {"requested": {"max": tres(cpu=10, mem=3903488)}, "allocated": tres(cpu=2)},
    }
    batch = {
        **step,
        "state": "COMPLETED",
        "exit_code": {"status": "SUCCESS", "return_code": 0},
        "step": {"job_id": 5, "het": {"component": None}, "id": "batch", "name": "batch"},
        "tres": {"requested": {"max": tres(mem=0)}, "allocated": []},
    }
    return {
        "job_id": 5,
        "name": "demo",
        "array": {"job_id": 0, "task_id": None, "task": None},
        "het": {"job_id": 0, "job_offset": None},
        "state": {"current": "COMPLETED", "reason": "None"},
        "exit_code": {"status": "SUCCESS", "return_code": 0},
        "derived_exit_code": {"status": "ERROR", "return_code": 137},
        "time": times(250_000, 60),
        "nodes": "n1",
        "allocation_nodes": 1,
        "required": {"CPUs": 2, "memory": 200},
        "tres": {"allocated": tres(cpu=2, mem=400), "requested": tres(cpu=2, mem=400)},
        "partition": "main",
        "qos": "low",
        "account": "physics",
        "steps": [batch, step],
    }


def layout_23_02() -> dict[str, Any]:
    """Some numbers wrapped, states still words; data_parser v0.0.39."""
    job = layout_21_08()
    job["array"] = {"job_id": 0, "task_id": opt(None), "task": ""}
    job["het"] = {"job_id": 0, "job_offset": opt(None)}
    job["time"] = times(250_000, opt(60))
    job["required"] = {"CPUs": 2, "memory_per_cpu": opt(200), "memory_per_node": opt(None)}
    return job


def layout_23_11() -> dict[str, Any]:
    """States and exit statuses are lists, nearly all numbers wrapped; v0.0.40 to v0.0.44."""
    job = layout_23_02()
    job["state"] = {"current": ["COMPLETED"], "reason": "None"}
    none = {"id": opt(None), "name": ""}
    job["exit_code"] = {"status": ["SUCCESS"], "return_code": opt(0), "signal": none}
    job["derived_exit_code"] = {"status": ["ERROR"], "return_code": opt(137), "signal": none}
    batch, step = job["steps"]
    for one, name in ((batch, "5.batch"), (step, "5.0")):
        one["time"] = times(500_000, None, step=True, newest=True)
        one["state"] = [one["state"]]
        one["step"] = {"id": name, "name": one["step"]["name"]}
    batch["exit_code"] = {"status": ["SUCCESS"], "return_code": opt(0), "signal": none}
    step["exit_code"] = {
        "status": ["SIGNALED"],
        "return_code": opt(None),
        "signal": {"id": opt(125), "name": "Unknown"},
    }
    return job


def layout_24_11() -> dict[str, Any]:
    return {**layout_23_11(), "restart_cnt": 0, "qosreq": "low"}


META = {
    (21, 8): {"Slurm": {"version": {"major": 21, "micro": 8, "minor": 8}, "release": "21.08.8"}},
    (22, 5): {"Slurm": {"version": {"major": 22, "micro": 9, "minor": 5}}},
    (23, 2): {"Slurm": {"version": {"major": 23, "micro": 6, "minor": 2}}},
    (23, 11): {"slurm": {"version": {"major": "23", "micro": "5", "minor": "11"}}},
    (24, 11): {"slurm": {"version": {"major": "24", "micro": "5", "minor": "11"}}},
    (25, 11): {"slurm": {"version": {"major": "25", "micro": "0", "minor": "11"}}},
}
LAYOUTS = {
    (21, 8): layout_21_08,
    (22, 5): layout_21_08,
    (23, 2): layout_23_02,
    (23, 11): layout_23_11,
    (24, 11): layout_24_11,
    (25, 11): layout_24_11,
}


def records(*jobs: dict[str, Any]) -> dict[str, list[AttemptRecord]]:
    return join(parse_json(json.dumps({"jobs": jobs, "errors": []})).rows)


@pytest.mark.parametrize("version", LAYOUTS)
def test_every_layout_reads_the_same(version: tuple[int, int]) -> None:
    answer = parse_json(json.dumps({"meta": META[version], "jobs": [LAYOUTS[version]()]}))
    assert answer.version == version
    (record,) = join(answer.rows)["5"]
    assert record.state.base == "OUT_OF_MEMORY"
    assert record.job_state.base == "COMPLETED"
    assert record.exit_code == ExitCode(0, 0)
    assert record.derived_exit_code == ExitCode(137, 0)
    assert (record.submit, record.start, record.end) == (SUBMIT, START, END)
    assert (record.elapsed_s, record.cpu_s) == (60.0, 1.25)
    assert (record.time_limit_s, record.req_cpus, record.cpus) == (3600.0, 2, 2)
    assert record.req_mem_bytes == 400 << 20
    assert record.max_rss_bytes == 3903488
    assert (record.nodes, record.partition, record.account) == ("n1", "main", "physics")
    assert (record.reason, record.name) == (None, "demo")
    assert [row.step for row in record.steps] == ["batch", "0"]
    assert record.steps[1].exit_code == ExitCode(0, 125)
    assert record.steps[0].max_rss_bytes is None


def test_completing_is_no_success() -> None:
    job = layout_23_11()
    job["state"]["current"] = ["COMPLETED", "COMPLETING"]
    (record,) = records(job)["5"]
    assert not record.state.is_terminal
    assert record.end is None


def test_requeued_as_the_last_record() -> None:
    job = {**layout_21_08(), "state": {"current": "REQUEUED", "reason": "None"}, "steps": []}
    (record,) = records(job)["5"]
    assert record.state.is_requeued
    assert not record.state.is_success
    assert record.end == END


def test_failed_with_a_success_as_exit_code_is_failed_with_an_unknown_one() -> None:
    job = {**layout_21_08(), "state": {"current": "FAILED", "reason": "None"}, "steps": []}
    (record,) = records(job)["5"]
    assert record.state.base == "FAILED"
    assert record.exit_code is None
    told = {"status": ["ERROR"], "return_code": opt(1), "signal": {"id": opt(None), "name": ""}}
    job = {**layout_23_11(), "state": {"current": ["FAILED"]}, "exit_code": told, "steps": []}
    assert records(job)["5"][0].exit_code == ExitCode(1, 0)


def test_array_tasks_and_their_waiting_rest() -> None:
    old = {**layout_21_08(), "array": {"job_id": 76, "task_id": 100, "task": None}}
    new = {**layout_23_11(), "array": {"job_id": 76, "task_id": opt(0), "task": ""}}
    rest = {**layout_23_11(), "array": {"job_id": 76, "task_id": opt(None), "task": "3-4%1"}}
    het = {**layout_23_11(), "het": {"job_id": 90, "job_offset": opt(1)}}
    assert list(records(old, new, rest, het)) == ["76_100", "76_0", "76_3", "76_4", "90+1"]
    assert records(old)["76_100"][0].raw_id == "5"


def test_nothing_recorded_is_none() -> None:
    job = {
        "job_id": 5,
        "state": {"current": ["PENDING"], "reason": "Priority"},
        "time": {"submission": SUBMIT, "start": 0, "end": 0, "elapsed": 0, "limit": opt(None)},
        "nodes": "None assigned",
        "tres": {"allocated": [], "requested": [{"type": "energy", "count": -2}]},
        "required": {"CPUs": 1, "memory_per_cpu": opt(None), "memory_per_node": opt(None)},
    }
    (record,) = records(job)["5"]
    assert (record.start, record.end, record.nodes, record.exit_code) == (None,) * 4
    assert (record.req_mem_bytes, record.cpus, record.cpu_s, record.time_limit_s) == (None,) * 4
    assert record.reason == "Priority"


@pytest.mark.parametrize(
    ("required", "size"),
    [
        ({"CPUs": 4, "memory": 200}, 2 * 200 << 20),
        ({"CPUs": 4, "memory": 200 | 1 << 63}, 4 * 200 << 20),
        ({"CPUs": 4, "memory_per_cpu": opt(512), "memory_per_node": opt(None)}, 2048 << 20),
        ({"CPUs": 4, "memory_per_cpu": opt(None), "memory_per_node": opt(512)}, 1024 << 20),
    ],
)
def test_memory_asked_for(required: dict[str, Any], size: int) -> None:
    job = {**layout_21_08(), "required": required, "tres": {}, "allocation_nodes": 2}
    assert records(job)["5"][0].req_mem_bytes == size


def test_warnings_before_the_answer_are_skipped() -> None:
    text = "sacct: warning: something\n" + json.dumps({"jobs": [layout_23_11()]})
    assert len(parse_json(text).rows) == 3
    assert parse_json(text).version is None


@pytest.mark.parametrize("text", ["", "sacct: error", "{}", '{"jobs": [{}]}', '{"jobs": 3}'])
def test_what_is_no_answer_is_refused(text: str) -> None:
    with pytest.raises(SchedulerError, match="does not print the JSON"):
        parse_json(text)


def test_numbers_of_all_layouts() -> None:
    assert number(3) == 3
    assert number(opt(3)) == 3
    assert number(opt(None)) is None
    assert number({"set": False, "infinite": True, "number": 0}) == math.inf
    assert number("23") == 23
    assert number("") is None
    assert number(None) is None
    assert number(True) is None
