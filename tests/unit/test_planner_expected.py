"""What a plan foretells, against the simulation of the same plan: within three per cent."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from milepost.config.spec import PlannerSpec, Resources, RunSpec, TierSpec, UploaderSpec, WorkSpec
from milepost.model import WorkKind
from milepost.planner.chart import draw
from milepost.planner.expected import Conditions
from milepost.planner.make import make_plan
from milepost.planner.simulate import simulate
from milepost.planner.simulation.failures import Exponential
from milepost.planner.simulation.outcome import estimate
from milepost.planner.simulation.setting import changed, setting_of
from milepost.planner.theory import exact_interval, exact_overhead
from milepost.planner.upload import goes_with_the_node, upload_seconds

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pulp")

HOUR = 3600.0
LONG = 400.0
"""Times the work of a shard: so long that its beginning and end do not count."""


def planned(
    mode: str,
    runtime_h: float,
    work_h: float,
    notice_s: float = 30.0,
    scratch: str = "work/scratch",
    **measured: Any,
) -> dict[str, Any]:
    spec = RunSpec(
        "flow",
        WorkSpec(WorkKind.RESUMABLE, "members.csv", command="solve {case}"),
        resources=Resources(cpus=4, gpus=1, runtime_s=int(runtime_h * HOUR)),
        planner=PlannerSpec(mode=mode, mtbf_h=24.0),  # type: ignore[arg-type]
        tiers=TierSpec(scratch=scratch),
    )
    smoke = {
        "contract_digest": "sha256:aa",
        "passed": True,
        "slice": {"tasks": 1, "set": {}},
        "measured": {
            "task_s": {"median": work_h * HOUR, "p95": work_h * HOUR, "n": 1},
            "t_ckpt_s": {"median": 20.0, "p95": 45.0, "n": 5},
            "durable_s": 30.0,
            "restore_s": 40.0,
            "step_s": 0.5,
        }
        | measured,
    }
    modes = {
        "on-demand": {"price_per_h": 2.0},
        "interruptible": {"price_per_h": 1.0, "preempt_mtbf_h": 3.0, "notice_s": notice_s},
    }
    profiles = {
        "schema": 1,
        "currency": "EUR",
        "utilisation": 1.0,
        "storage": {"price_per_gb_month": 0},
        "profiles": {"gpu": {"vram_gb": 24, "modes": modes}},
    }
    return make_plan(spec, smoke, 4, profiles=profiles)


@pytest.mark.parametrize(
    ("mode", "runtime_h", "work_h", "notice_s", "scratch"),
    [
        ("on-demand", 48.0, 10.0, 0.0, "work/scratch"),
        ("on-demand", 2.0, 10.0, 0.0, "work/scratch"),
        ("on-demand", 0.5, 10.0, 0.0, "work/scratch"),
        ("interruptible", 48.0, 10.0, 30.0, "work/scratch"),
        ("interruptible", 48.0, 10.0, 120.0, "work/scratch"),
        ("interruptible", 48.0, 10.0, 5.0, "work/scratch"),
        ("interruptible", 2.0, 10.0, 120.0, "work/scratch"),
        ("on-demand", 48.0, 10.0, 0.0, "$TMPDIR"),
        ("on-demand", 2.0, 10.0, 0.0, "/local/ckpt"),
        ("interruptible", 48.0, 10.0, 120.0, "$TMPDIR"),
    ],
)
def test_a_plan_foretells_what_the_simulation_comes_to(
    mode: str, runtime_h: float, work_h: float, notice_s: float, scratch: str
) -> None:
    plan = planned(mode, runtime_h, work_h, notice_s, scratch, ckpt_bytes=10**10)
    assert plan["mode"] == mode
    setting = setting_of(plan)
    is_limited = runtime_h < work_h
    long = changed(setting, {"work_s": LONG * setting.work_s})
    if not is_limited:
        long = replace(long, walltime_s=None)
    title, _, policy = long.policy("plan")
    assert title == "as planned"
    runs = simulate(long.job(), Exponential(setting.mtbf_s), policy, 300)
    found = estimate(runs.overhead, 0.999)
    assert plan["overhead"]["fraction"] == pytest.approx(found.mean, rel=0.03)
    # A preemption also begins a new allocation: first order where there are both.
    slack = 0.03 if is_limited and mode == "interruptible" else 0.01
    low, high = found.low * (1 - slack), found.high * (1 + slack)
    assert low <= plan["overhead"]["fraction"] <= high
    assert long.predict(setting.interval_s) == pytest.approx(plan["overhead"]["fraction"], rel=0.01)


def test_what_the_node_takes_along_must_be_uploaded_in_time() -> None:
    """10 GB at 200 MB/s: 50 s more until a checkpoint counts, and 50 s less of the notice."""
    kept = planned("interruptible", 48.0, 10.0, 60.0, ckpt_bytes=10**10)
    gone = planned("interruptible", 48.0, 10.0, 60.0, "$TMPDIR/ckpt", ckpt_bytes=10**10)
    assert gone["overhead"]["durable_lag_s"] == kept["overhead"]["durable_lag_s"] + 50.0
    rows = {row["name"]: row["value"] for row in gone["assumptions"]}
    assert rows["upload_s"] == 50.0 and rows["notice_s"] == 60.0
    before = {row["name"]: row["value"] for row in kept["assumptions"]}
    assert "upload_s" not in before
    assert rows["saved_in_notice"] < 0.2 < 0.9 < before["saved_in_notice"]
    assert setting_of(gone).notice_s == 10.0
    assert gone["interval_s"] <= kept["interval_s"]


@pytest.mark.parametrize(
    ("scratch", "is_gone"),
    [
        ("work/scratch", False),
        ("/project/scratch", False),
        ("/tmp", True),
        ("/tmpfiles", False),
        ("/local/$SLURM_JOB_ID", True),
        ("/dev/shm/x", True),
        ("${TMPDIR}", True),
    ],
)
def test_which_scratch_goes_with_the_node(scratch: str, is_gone: bool) -> None:
    assert goes_with_the_node(scratch) == is_gone


def test_nothing_is_added_where_nothing_is_uploaded() -> None:
    spec = RunSpec(
        "flow",
        WorkSpec(WorkKind.RESUMABLE, "members.csv", command="solve"),
        tiers=TierSpec(scratch="$TMPDIR"),
    )
    assert upload_seconds(spec, 10**9) == 5.0
    assert upload_seconds(spec, None) == 0.0
    assert upload_seconds(replace(spec, tiers=TierSpec("$TMPDIR", warm=None)), 10**9) == 0.0
    fast = replace(spec.checkpoint, uploader=UploaderSpec(max_bandwidth_mb_s=None))
    assert upload_seconds(replace(spec, checkpoint=fast), 10**9) == 0.0
    off = replace(spec.checkpoint, uploader=UploaderSpec(enable=False))
    assert upload_seconds(replace(spec, checkpoint=off), 10**9) == 0.0
    batch = replace(spec, work=WorkSpec(WorkKind.BATCH, "t.csv", command="x"))
    assert upload_seconds(batch, 10**9) == 0.0


def test_the_page_draws_the_plans_own_overhead() -> None:
    plan = planned("interruptible", 2.0, 10.0)
    assert plan["overhead"]["extra_fraction"] > 0.01
    chart = draw(plan)
    assert chart is not None
    chosen = next(mark for mark in chart.marks if mark.kind == "chosen")
    assert chosen.overhead == pytest.approx(plan["overhead"]["fraction"], rel=1e-4)


def test_nothing_extra_without_preemption_and_walltime() -> None:
    plan = planned("on-demand", 48.0, 10.0)
    assert plan["overhead"]["extra_fraction"] == 0.0


@pytest.mark.parametrize("t_ckpt_s", [0.02, 0.1, 0.5, 5.0, 60.0, 600.0])
def test_a_plan_says_where_the_textbook_misstates_the_cost(t_ckpt_s: float) -> None:
    """By more than five per cent of the exact cost, and only there."""
    plan = planned(
        "on-demand",
        480.0,
        100.0,
        t_ckpt_s={"median": t_ckpt_s, "p95": t_ckpt_s, "n": 3},
        durable_s=t_ckpt_s,
        restore_s=1e-3,
    )
    exact, textbook = plan["overhead"]["fraction"], plan["overhead"]["textbook_fraction"]
    is_said = any("the textbook formula gives" in note for note in plan["notes"])
    assert is_said == (abs(textbook - exact) > 0.05 * exact)
    assert is_said == (t_ckpt_s != 60.0), "the wait decides with short checkpoints"


def test_conditions_come_down_to_the_plain_formula() -> None:
    plain = Conditions(20.0, 24 * HOUR, 40.0, 60.0, 10.0)
    assert plain.best_interval_s == exact_interval(20.0, 24 * HOUR)
    assert plain.overhead(900.0) == exact_overhead(900.0, 20.0, 24 * HOUR, 40.0, 60.0, 10.0)
    rare = replace(plain, preempt_mtbf_s=1e12, notice_s=60.0, forced_median_s=20.0)
    assert rare.overhead(900.0) == pytest.approx(plain.overhead(900.0))
    assert rare.saved_chance == 1.0
    wide = replace(plain, left_s=2000 * 920.0, requeue_s=60.0)
    assert wide.overhead(900.0) == pytest.approx(plain.overhead(900.0), rel=0.01)


def test_preemptions_cost_time_also_when_they_lose_nothing() -> None:
    calm = Conditions(20.0, 24 * HOUR, 40.0, 60.0, requeue_s=300.0)
    often = replace(calm, preempt_mtbf_s=HOUR, notice_s=120.0, forced_median_s=20.0)
    extra = (1 + often.overhead(900.0)) / (1 + calm.overhead(900.0)) - 1
    assert extra == pytest.approx((20 + 300 + 40 - 10) / HOUR, rel=0.01)
    assert math.isinf(replace(often, mtbf_s=1.0).overhead(1e6))
