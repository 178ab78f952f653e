"""The numbers of a simulation: what a plan says, what changes say, and the formulas beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from milepost.errors import ConfigError
from milepost.planner.expected import Conditions
from milepost.planner.simulation.policies import Adaptive, EvenSplit, Every
from milepost.planner.simulation.setting import Setting, changed, read_changes, setting_of
from milepost.planner.theory import exact_interval, exact_overhead, whole_chunks

HOUR = 3600.0


def plan(**overhead: Any) -> dict[str, Any]:
    known = {
        "useful_s": 4e6,
        "unit_s": 500.0,
        "t_ckpt_s": 5.0,
        "restore_s": 10.0,
        "downtime_s": 60.0,
        "durable_lag_s": 7.0,
        "mtbf_s": 9000.0,
    }
    rows = {
        "mtbf_s": 20000.0,
        "preemption_mtbf_s": 15000.0,
        "notice_s": 30.0,
        "t_ckpt_p95_s": 9.0,
        "step_s": 2.0,
        "durable_s": 12.0,
        "upload_s": 4.0,
    }
    return {
        "run": "flow",
        "shard_count": 4,
        "walltime_s": 86400,
        "mode": "interruptible",
        "interval_source": "stated in the config (checkpoint.interval_seconds)",
        "overhead": known | overhead,
        "cost": {"price_per_h": 2.0, "units": 4, "utilisation": 0.8},
        "assumptions": [{"name": name, "value": value} for name, value in rows.items()],
    }


def test_a_plan_says_what_its_shards_meet() -> None:
    found = setting_of(plan())
    assert found == Setting(
        t_ckpt_s=5.0,
        mtbf_s=20000.0,
        work_s=1e6,
        interval_s=500.0,
        t_ckpt_p95_s=9.0,
        step_s=2.0,
        restore_s=10.0,
        downtime_s=60.0,
        lag_s=7.0,
        durable_s=12.0,
        walltime_s=86400,
        preempt_mtbf_s=15000.0,
        notice_s=26.0,
        price_per_h=10.0,
        longest_s=120.0,
        is_stated=True,
    )
    job = found.job()
    assert job.walltime is not None and job.preemption is not None and job.far is None
    assert job.walltime.margin_s == 9.0 + 2.0 + 60.0 - 5.0
    assert (job.preemption.median_s, job.preemption.p95_s, job.preemption.step_s) == (5, 9, 2)


def test_work_of_unknown_length_is_long() -> None:
    found = setting_of(plan(useful_s=None))
    assert found.work_s == 100 * 20000.0 and found.is_open
    assert not changed(found, {"work_s": 5.0}).is_open
    assert changed(found, {"mtbf_s": 5.0}).is_open


def test_a_belief_is_worth_the_failures_behind_it() -> None:
    known = plan() | {"mtbf": {"failures": {"failures": 12}}}
    assert setting_of(known).worth == 12.0
    assert setting_of(plan() | {"mtbf": {"failures": {"failures": 0}}}).worth == 1.0
    _, _, policy = setting_of(known).policy("adaptive")
    assert isinstance(policy, EvenSplit) and isinstance(policy.every, Adaptive)
    assert policy.every.worth == 12.0


def test_of_several_places_it_is_the_first() -> None:
    first = {"useful_s": 3e5, "shards": 3, "walltime_s": 7200, "mode": "on-demand"}
    second = {"useful_s": 9e5, "shards": 1, "walltime_s": 60, "mode": "interruptible"}
    found = setting_of(plan() | {"placement": [first, second]})
    assert (found.work_s, found.walltime_s, found.longest_s) == (1e5, 7200, None)


def test_a_plan_without_measurements_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to simulate"):
        setting_of(plan(t_ckpt_s=None))


def test_changes_are_read_in_their_units() -> None:
    texts = ["mtbf_h=6", "t_ckpt_s=30", "walltime_h=null", "far_every=3", "node_loss=0.5"]
    found = read_changes(texts)
    assert found == {
        "mtbf_s": 6 * HOUR,
        "t_ckpt_s": 30.0,
        "walltime_s": None,
        "far_every": 3,
        "node_loss": 0.5,
    }
    setting = changed(setting_of(plan()), found)
    assert setting.walltime_s is None and setting.job().walltime is None
    assert setting.t_ckpt_p95_s == 0.0, "the spread was that of the other t_ckpt"
    far = setting.job().far
    assert far is not None and (far.every, far.node_loss, far.restore_s) == (3, 0.5, 10.0)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("mtbf=6", "did you mean mtbf_h"),
        ("mtbf_h", "mtbf_h is ''"),
        ("mtbf_h=often", "mtbf_h is 'often', not a number"),
        ("mtbf_h=0", "mtbf_h is 0"),
        ("t_ckpt_s=-1", "t_ckpt_s is -1"),
        ("t_ckpt_s=nan", "t_ckpt_s is nan"),
        ("t_ckpt_s=null", "t_ckpt_s is 'null'"),
        ("far_every=1.5", "use a whole number"),
    ],
)
def test_a_change_that_is_none_is_named(text: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_changes([text])
    assert named in str(caught.value)


def test_without_a_run_the_changes_say_it_all() -> None:
    found = changed(None, read_changes(["t_ckpt_s=60", "mtbf_h=6"]))
    assert found.work_s == 600 * HOUR
    assert found.interval_s == pytest.approx(exact_interval(60, 6 * HOUR), rel=0.01)
    assert changed(None, {"t_ckpt_s": 60.0, "mtbf_s": 5e4, "interval_s": 77.0}).interval_s == 77.0
    with pytest.raises(ConfigError, match=r"mtbf_h from.*\n.*mtbf_h=…"):
        changed(None, {"t_ckpt_s": 60.0})


def test_policies_are_those_of_the_runner() -> None:
    setting = replace(setting_of(plan()), preempt_mtbf_s=None)
    title, interval, policy = setting.policy("plan")
    assert (title, interval) == ("as planned", 500.0)
    assert policy == EvenSplit(Every(500.0), 5.0, never_longer=True)
    best = 1e6 / whole_chunks(1e6, 5, 20000)
    assert setting.policy("optimal")[1:] == (best, EvenSplit(Every(best), 5.0))
    assert setting.policy("default")[1] == 120.0
    _, interval, policy = setting.policy("adaptive")
    assert interval is None and isinstance(policy, EvenSplit)
    assert isinstance(policy.every, Adaptive)
    assert (policy.every.first_s, policy.every.least_s, policy.every.most_s) == (500, 12, 120)
    with pytest.raises(ConfigError, match="interval is 0"):
        setting.fixed(0.0)


def test_there_is_no_interval_to_choose_between_tasks() -> None:
    setting = setting_of(plan(t_ckpt_s=0.0))
    assert setting.policy("plan")[1] == 500.0
    with pytest.raises(ConfigError, match="nothing to choose"):
        setting.policy("optimal")


def test_the_formula_is_that_of_what_is_simulated() -> None:
    base = Setting(5.0, 20000.0, 1e6, 500.0, restore_s=10.0, downtime_s=60.0, lag_s=7.0)
    assert base.predict(400.0) == exact_overhead(400.0, 5, 20000, 10, 60, 7)
    assert replace(base, walltime_s=2e6).predict(400.0) == base.predict(400.0), "it fits into one"
    limited = replace(base, walltime_s=7200.0, requeue_s=600.0)
    left = 7200 - 60 - 7 - 10
    expected = Conditions(5.0, 20000.0, 10.0, 60.0, 7.0, 600.0, left).overhead(400.0)
    assert limited.predict(400.0) == pytest.approx(expected)
    assert limited.predict(400.0) > 1.5 * base.predict(400.0)
    two = replace(base, lag_s=0.0, far_every=4, far_t_ckpt_s=20.0, node_loss=0.2)
    assert two.predict(100.0) > replace(base, lag_s=0.0).predict(100.0)
    assert replace(two, far_lag_s=5.0).predict(100.0) is None
