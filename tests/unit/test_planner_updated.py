"""A plan's MTBF goes on into the run: what the plan knew, and the attempts since."""

from __future__ import annotations

import json
from typing import Any

import pytest

from milepost.clock import iso
from milepost.config.spec import CheckpointSpec, PlannerSpec, Resources, RunSpec, WorkSpec
from milepost.model import WorkKind
from milepost.planner.make import make_plan
from milepost.planner.updated import update
from milepost.slurm.past import PastJobs
from milepost.slurm.records import Row
from milepost.slurm.states import parse_state

HOUR = 3600.0
NOW = 1772359200.0


def spec(**planner: Any) -> RunSpec:
    return RunSpec(
        "flow",
        WorkSpec(WorkKind.RESUMABLE, "members.csv", command="solve {case}"),
        resources=Resources(cpus=4, runtime_s=24 * 3600),
        checkpoint=CheckpointSpec(),
        planner=PlannerSpec(**planner),
    )


def block(
    attempts: list[dict[str, Any]] | None = None, jobs: PastJobs | None = None, **planner: Any
) -> dict[str, Any]:
    """The block of a plan, as it is read from its file."""
    measured = {"t_ckpt_s": {"median": 2.0, "p95": 3.0, "n": 5}}
    plan = make_plan(spec(**planner), {"measured": measured}, 4, attempts or (), None, jobs)
    found: dict[str, Any] = json.loads(json.dumps(plan))["mtbf"]
    return found


def killed(hours: float, **more: Any) -> dict[str, Any]:
    times = {"started": iso(NOW - hours * HOUR), "last_sign": iso(NOW)}
    return {"attempt": 1, "stop": None, "ended": None, **times, **more}


def done(hours: float, **more: Any) -> dict[str, Any]:
    times = {"started": iso(NOW - hours * HOUR), "ended": iso(NOW)}
    return {"attempt": 1, "stop": "done", **times, **more}


def past(*ends: str, hours: float = 10.0, nodes: int = 1) -> PastJobs:
    rows = [
        Row(
            job_id=str(number),
            raw_id=str(number),
            step=None,
            state=parse_state(end),
            exit_code=None,
            start=NOW - (number + 1) * hours * HOUR,
            end=NOW - number * hours * HOUR,
            node_count=nodes,
            partition="main",
        )
        for number, end in enumerate(ends)
    ]
    return PastJobs(NOW - 90 * 24 * HOUR, NOW, tuple(rows))


def test_nothing_known_stays_nothing_known_until_the_run_is_interrupted() -> None:
    assert update(None, []).mtbf_s is None
    assert update(block(), [done(1.0)]).mtbf_s is None
    found = update(block(), [done(1.0), killed(3.0)])
    assert found.mtbf_s == pytest.approx(4 * HOUR / 1.5)
    assert (found.interruptions, found.exposure_s) == (1, 4 * HOUR)


def test_the_accounting_of_the_plan_is_not_forgotten_and_attempts_are_not_counted_twice() -> None:
    before = [killed(2.0)]
    kept = block(before, past("NODE_FAIL", "COMPLETED", "COMPLETED"))
    assert kept["failures"]["value_s"] == pytest.approx((30 + 2) * HOUR / 2.5, rel=1e-4)
    same = update(kept, before)
    assert same.mtbf_s == pytest.approx((30 + 2) * HOUR / 2.5, rel=1e-4)
    assert same.source == "2 failures in 32 node h of Slurm's accounting and the run's attempts"
    later = update(kept, [*before, killed(1.0)])
    assert later.mtbf_s == pytest.approx((30 + 3) * HOUR / 3.5, rel=1e-4)


def test_jobs_of_the_run_itself_are_its_attempts() -> None:
    own = done(5.0, slurm_job_id="0")
    kept = block([own], past("NODE_FAIL", "COMPLETED"))
    accounting, attempts = kept["sources"]
    assert (accounting["executions"], attempts["executions"]) == (1, 1)
    assert attempts["failures"] == {"1": 1}, "Slurm knows that its node died"


def test_what_the_contract_states_is_worth_one_failure_once_the_run_tells_otherwise() -> None:
    kept = block(mtbf_h=1000.0)
    assert kept["failures"]["value_s"] == 1000 * HOUR
    assert update(kept, []).mtbf_s == pytest.approx(1000 * HOUR)
    many = [killed(0.5) for _ in range(9)]
    assert update(kept, many).mtbf_s == pytest.approx(1004.5 * HOUR / 10)


def test_large_jobs_of_the_past_keep_their_size() -> None:
    kept = block(None, past("NODE_FAIL", "NODE_FAIL", nodes=16))
    assert kept["sources"][0]["failures"] == {"16": 2}
    assert update(kept, []).mtbf_s == pytest.approx(kept["failures"]["value_s"], rel=1e-4)


def test_preemptions_count_as_far_as_their_notice_is_too_short() -> None:
    gone = done(1.0, stop="signal TERM", then="requeued: it was preempted")
    found = update(block(mode="interruptible"), [gone, done(3.0)])
    assert found.interruptions == 1
    assert found.source.endswith("1 preemption in 4 h of the run's attempts")
    preempt_s = 4 * HOUR / 1.5
    assert found.mtbf_s == pytest.approx(1 / (1 / (24 * HOUR) + 1 / preempt_s), rel=1e-6)
