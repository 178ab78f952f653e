"""Laws of the planner."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.config.spec import (
    CheckpointSpec,
    PlannerSpec,
    Resources,
    RunSpec,
    ShardsSpec,
    WorkSpec,
)
from milepost.model import WorkKind
from milepost.planner import theory
from milepost.planner.levels import two_tier_overhead
from milepost.planner.make import make_plan
from milepost.planner.rate import gamma_posterior
from milepost.planner.report import report_html
from milepost.planner.reservation import reservation_overhead
from milepost.planner.sharding import split_tasks
from milepost.planner.simulate import simulate
from milepost.planner.simulation.failures import Exponential
from milepost.planner.simulation.job import FarTier, Job, Preemption, Walltime
from milepost.planner.simulation.policies import EvenSplit, Every
from milepost.planner.summary import summarise
from milepost.planner.walltime import even_split

seconds = st.floats(1e-3, 1e6)
SHARDS = st.one_of(
    st.builds(ShardsSpec, target_s=st.floats(1.0, 1e5)),
    st.builds(ShardsSpec, count=st.integers(1, 500)),
    st.builds(ShardsSpec, tasks_per_shard=st.integers(1, 500)),
)


@settings(deadline=None)
@given(count=st.integers(1, 2000), shards=SHARDS, task_s=seconds, cpus=st.integers(1, 64))
def test_slices_hold_every_task_once(
    count: int, shards: ShardsSpec, task_s: float, cpus: int
) -> None:
    plan = split_tasks(count, shards, task_s, 1.0, cpus)
    slices = list(plan.slices(count))
    assert [position for part in slices for position in part] == list(range(count))
    assert len(slices) == plan.shard_count
    assert max(map(len, slices)) == plan.tasks_per_shard
    assert min(map(len, slices)) >= 1


@settings(deadline=None)
@given(ckpt=seconds, mtbf=st.floats(1.0, 1e8), factor=st.floats(0.2, 5.0))
def test_no_interval_beats_the_exact_one(ckpt: float, mtbf: float, factor: float) -> None:
    best = theory.exact_interval(ckpt, mtbf)
    assert 0.0 < best < mtbf or ckpt > 20 * mtbf
    at_best = theory.exact_overhead(best, ckpt, mtbf)
    other = theory.exact_overhead(factor * best, ckpt, mtbf)
    assert at_best <= other + 1e-6 * (1.0 + abs(other))


@settings(deadline=None)
@given(ckpt=seconds, mtbf=st.floats(1.0, 1e8))
def test_the_exact_interval_is_shorter_than_the_textbook_one(ckpt: float, mtbf: float) -> None:
    assert theory.exact_interval(ckpt, mtbf) <= theory.young_interval(ckpt, mtbf) * (1 + 1e-6)


@settings(deadline=None)
@given(ckpt=seconds, mtbf=st.floats(1.0, 1e7), more=st.floats(1.0, 10.0))
def test_dearer_checkpoints_and_rarer_failures_lengthen_the_interval(
    ckpt: float, mtbf: float, more: float
) -> None:
    base = theory.exact_interval(ckpt, mtbf) * (1 - 1e-6)
    assert base <= theory.exact_interval(ckpt * more, mtbf)
    assert base <= theory.exact_interval(ckpt, mtbf * more)


@settings(deadline=None)
@given(ckpt=st.floats(0.1, 1e3), mtbf=st.floats(10.0, 1e6), left=st.floats(1.0, 1e6))
def test_an_even_split_ends_with_the_reservation(ckpt: float, mtbf: float, left: float) -> None:
    interval = even_split(left, ckpt, mtbf)
    assert 0.0 <= interval <= left
    if interval > 0.0:
        parts = left / (interval + ckpt)
        assert parts == pytest.approx(round(parts), rel=1e-6)


@settings(deadline=None)
@given(
    ckpt=st.floats(0.1, 100.0),
    ratio=st.floats(20.0, 1e5),
    left=st.floats(200.0, 1e5),
    rest=st.tuples(*[st.floats(0.0, 100.0)] * 3),
)
def test_no_number_of_pieces_beats_the_best_by_much(
    ckpt: float, ratio: float, left: float, rest: tuple[float, float, float]
) -> None:
    """The even split is the best whole number of pieces up to a fiftieth of the time, where a
    checkpoint takes no more than a twentieth of the MTBF."""
    mtbf = ratio * ckpt
    parts = max(1, round(left / (theory.exact_interval(ckpt, mtbf) + ckpt)))
    chosen = reservation_overhead(left, parts, ckpt, mtbf, *rest)
    for other in {1, max(1, parts - 1), parts + 1, 2 * parts}:
        if left / other > ckpt:
            found = reservation_overhead(left, other, ckpt, mtbf, *rest)
            assert chosen <= found + 0.02 * (1.0 + found)


@settings(deadline=None)
@given(
    near=st.floats(0.1, 20.0),
    far=st.floats(1.0, 200.0),
    count=st.integers(1, 30),
    period=st.floats(10.0, 1e4),
    mtbf=st.tuples(st.floats(2000.0, 1e6), st.floats(2000.0, 1e6)),
    rest=st.tuples(*[st.floats(0.0, 100.0)] * 3),
)
def test_two_tiers_cost_more_than_their_checkpoints_and_less_than_one_far_tier(
    near: float,
    far: float,
    count: int,
    period: float,
    mtbf: tuple[float, float],
    rest: tuple[float, float, float],
) -> None:
    found = two_tier_overhead(period, count, near, far, *mtbf, *rest)
    assert found >= (count * near + far) / period * (1 - 1e-9)
    both = 1.0 / (1.0 / mtbf[0] + 1.0 / mtbf[1])
    slowest = max(rest[0], rest[1])
    alone = theory.exact_overhead(period, far + count * near, both, slowest, rest[2])
    assert found <= alone * (1 + 1e-6)


@settings(max_examples=60, deadline=None)
@given(
    job=st.builds(
        Job,
        work_s=st.floats(100.0, 1e5),
        t_ckpt_s=st.floats(0.0, 50.0),
        restore_s=st.floats(0.0, 50.0),
        downtime_s=st.floats(0.0, 500.0),
        lag_s=st.floats(0.0, 100.0),
        walltime=st.one_of(
            st.none(),
            st.builds(
                Walltime, st.floats(3000.0, 1e5), st.floats(0.0, 500.0), in_place=st.booleans()
            ),
        ),
        preemption=st.one_of(
            st.none(),
            st.builds(Preemption, st.floats(3000.0, 1e5), st.floats(0.0, 200.0), st.just(20.0)),
        ),
        far=st.one_of(
            st.none(),
            st.builds(
                FarTier,
                st.integers(1, 5),
                st.floats(0.0, 50.0),
                st.floats(0.0, 100.0),
                st.floats(0.0, 1.0),
                st.floats(0.0, 100.0),
            ),
        ),
    ),
    mtbf=st.floats(5e3, 1e6),
    interval=st.floats(50.0, 1000.0),
    seed=st.integers(0, 1000),
)
def test_simulated_time_is_accounted_for(job: Job, mtbf: float, interval: float, seed: int) -> None:
    """Wall time is work, lost work, standstill, restores and waits; none of them is negative."""
    policy = EvenSplit(Every(interval), job.t_ckpt_s)
    runs = simulate(job, Exponential(mtbf), policy, 20, seed)
    tiny = 1e-9 * float(runs.wall_s.max()) + 1e-6
    for part in (runs.lost_s, runs.checkpoint_s, runs.restore_s, runs.waiting_s):
        assert part.min() >= -tiny
    assert runs.wall_s.min() >= job.work_s - tiny
    assert (runs.saved_preemptions <= runs.preemptions).all()
    waits = job.downtime_s * runs.failures
    if job.walltime is None and job.preemption is None:
        assert abs(runs.waiting_s - waits).max() <= tiny
        assert runs.allocations.max() == 1


@settings(deadline=None)
@given(failures=st.integers(0, 50), exposure=st.floats(1.0, 1e7))
def test_more_failures_shorten_the_mtbf_and_stay_in_its_interval(
    failures: int, exposure: float
) -> None:
    value, low, high = gamma_posterior(failures, exposure)
    assert low < value < high
    assert gamma_posterior(failures + 1, exposure)[0] < value
    assert gamma_posterior(failures, exposure * 2)[0] > value


def spread(median: float | None, ratio: float) -> dict[str, Any] | None:
    return None if median is None else {"median": median, "p95": median * ratio, "n": 3}


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from([WorkKind.BATCH, WorkKind.RESUMABLE]),
    mode=st.sampled_from(["auto", "on-demand", "interruptible", "reserved"]),
    stated=st.one_of(st.none(), st.floats(1.0, 1e4)),
    task=st.floats(1e-2, 1e5),
    ckpt=st.one_of(st.none(), st.floats(1e-3, 100.0)),
    durable=st.one_of(st.none(), st.floats(1e-3, 500.0)),
    ratio=st.floats(1.0, 3.0),
    mtbf=st.one_of(st.none(), st.floats(0.1, 1e4)),
    runtime=st.integers(600, 10**6),
    tasks=st.integers(1, 10**6),
    reduced=st.booleans(),
)
def test_every_plan_keeps_its_bounds(
    kind: WorkKind,
    mode: Any,
    stated: float | None,
    task: float,
    ckpt: float | None,
    durable: float | None,
    ratio: float,
    mtbf: float | None,
    runtime: int,
    tasks: int,
    reduced: bool,
) -> None:
    spec = RunSpec(
        "run",
        WorkSpec(kind, "t.csv", command="x"),
        resources=Resources(cpus=2, runtime_s=runtime),
        shards=ShardsSpec(target_s=600.0),
        checkpoint=CheckpointSpec(interval_s=stated),
        planner=PlannerSpec(mode=mode, mtbf_h=mtbf),
    )
    smoke = {
        "contract_digest": "sha256:0",
        "slice": {"set": {"n": "1"} if reduced else {}},
        "measured": {
            "task_s": spread(task, ratio),
            "t_ckpt_s": spread(ckpt, ratio),
            "durable_s": durable,
        },
    }
    plan = make_plan(spec, smoke, tasks)
    assert plan["interval_s"] > 0.0
    assert 0 < plan["walltime_s"] <= runtime
    floor = (durable or 0.0) if kind is WorkKind.RESUMABLE else 0.0
    assert plan["interval_s"] >= floor * (1 - 1e-5)
    if mode == "interruptible":
        assert plan["interval_s"] <= max(120.0, floor * (1 + 1e-5))
    assert all(row["source"] for row in plan["assumptions"])
    json.dumps(plan, allow_nan=False)
    assert len(summarise(plan).splitlines()) == 10
    assert report_html(plan) == report_html(json.loads(json.dumps(plan)))
