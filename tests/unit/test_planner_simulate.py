"""The simulator against the formulas, and against a loop that plays one activity after the other."""

from __future__ import annotations

import importlib
import math
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milepost.errors import ConfigError
from milepost.planner import simulate as engine
from milepost.planner.expected import Conditions
from milepost.planner.levels import two_tier_overhead
from milepost.planner.reservation import saved_work
from milepost.planner.simulate import BATCH, simulate
from milepost.planner.simulation.failures import Exponential, Never, Replay, Weibull
from milepost.planner.simulation.fleet import Fleet
from milepost.planner.simulation.job import FarTier, Job, Preemption, Walltime
from milepost.planner.simulation.outcome import Runs, estimate, summarise
from milepost.planner.simulation.policies import Adaptive, EvenSplit, Every, Policy, Sweep, View
from milepost.planner.theory import (
    exact_interval,
    exact_overhead,
    expected_time,
    textbook_overhead,
    whole_chunks,
)
from milepost.planner.walltime import even_split

ROOT = Path(__file__).resolve().parents[2]
HOUR = 3600.0
SURE = 0.999
"""Confidence of the intervals that a formula must lie in: a false alarm in a thousand cases."""


def assert_agrees(runs: Runs, predicted: float) -> None:
    """Within three per cent, and within the simulation's interval as far as a formula is exact."""
    found = summarise(runs, level=SURE).overhead
    assert found.low <= predicted <= found.high
    assert predicted == pytest.approx(found.mean, rel=0.03)
    assert (found.high - found.low) / found.mean < 0.06


@pytest.mark.parametrize("lag", [0.0, 1.0])
@pytest.mark.parametrize("down", [0.0, 2.0])
@pytest.mark.parametrize("restore", [0.0, 2.0])
@pytest.mark.parametrize("ratio", [0.0001, 0.003, 0.03, 0.3])
@pytest.mark.parametrize("factor", [0.4, 1.0, 2.5])
def test_failures_at_a_constant_rate(
    ratio: float, factor: float, restore: float, down: float, lag: float
) -> None:
    """t_ckpt/MTBF from tiny to large, intervals below and above the optimum; lag, restore and
    downtime in checkpoints."""
    mtbf, ckpt = 1000.0, 1000.0 * ratio
    interval = factor * exact_interval(ckpt, mtbf)
    job = Job(
        interval * math.ceil(150 * mtbf / interval), ckpt, restore * ckpt, down * ckpt, lag * ckpt
    )
    rest = (restore * ckpt, down * ckpt, lag * ckpt)
    predicted = exact_overhead(interval, ckpt, mtbf, *rest)
    assert_agrees(simulate(job, Exponential(mtbf), Every(interval), 1200), predicted)


@pytest.mark.parametrize("mtbf", [900.0, 6 * HOUR, 24 * HOUR])
@pytest.mark.parametrize("work_h", [1.0, 10.0])
def test_finite_work_in_whole_chunks(mtbf: float, work_h: float) -> None:
    """The expected time of a short job is that of its chunks, and the best count is the best."""
    work, ckpt, restore, down = work_h * HOUR, 120.0, 200.0, 60.0
    best = whole_chunks(work, ckpt, mtbf)

    def expected(count: int) -> float:
        return count * expected_time(work / count, ckpt, mtbf, restore, down)

    runs = simulate(Job(work, ckpt, restore, down), Exponential(mtbf), Every(work / best), 30000)
    found = estimate(runs.wall_s, SURE)
    assert found.low <= expected(best) <= found.high
    assert found.mean == pytest.approx(expected(best), rel=0.03)
    assert expected(best) <= min(expected(max(1, best - 1)), expected(best + 1))


@pytest.mark.parametrize("mtbf_h", [6.0, 24.0])
@pytest.mark.parametrize("walltime_h", [1.0, 4.0, 24.0])
@pytest.mark.parametrize(("ckpt", "lag"), [(5.0, 0.0), (60.0, 120.0), (300.0, 0.0)])
def test_walltime(mtbf_h: float, walltime_h: float, ckpt: float, lag: float) -> None:
    """Even split of each allocation, a wait for the next one, another allocation after a failure."""
    mtbf, margin = mtbf_h * HOUR, 60.0
    left = walltime_h * HOUR - margin - lag - ckpt
    interval = even_split(left, ckpt, mtbf)
    limit = Walltime(walltime_h * HOUR, requeue_s=120.0, margin_s=margin)
    job = Job(600 * left, ckpt, ckpt, 60.0, lag, limit)
    job = replace(job, work_s=max(300 * interval, 60 * mtbf))
    every = EvenSplit(Every(exact_interval(ckpt, mtbf)), ckpt)
    known = Conditions(ckpt, mtbf, ckpt, 60.0, lag, 120.0, left)
    found = summarise(simulate(job, Exponential(mtbf), every, 1500), level=SURE).overhead
    assert known.overhead(interval) == pytest.approx(found.mean, rel=0.03)
    # The first allocation has no restore: a job of finite length is that much better.
    edge = (ckpt + 180.0) / job.work_s
    assert found.low - edge <= known.overhead(interval) <= found.high + edge


@pytest.mark.parametrize(
    ("length", "mtbf", "policy"), [(60, 360, "even"), (240, 360, "even"), (240, 360, "end")]
)
def test_saved_work_of_a_reservation(length: int, mtbf: int, policy: str) -> None:
    """Against dynamic programming, in minutes: the allocation goes on after a failure."""
    chosen: Policy = (
        EvenSplit(Every(exact_interval(5, mtbf)), 5) if policy == "even" else Every(1e9)
    )

    def interval(left: float) -> float:
        return even_split(left, 5, mtbf) if policy == "even" else left - 5

    expected = saved_work(length, 5, mtbf, 10, 0.5, interval)
    limit = Walltime(length, in_place=True)
    runs = simulate(Job(500 * expected, 5, 0, 10, 0, limit), Exponential(mtbf), chosen, 1500)
    each = estimate(500 * expected / (runs.allocations - 0.5), SURE)
    assert each.low * 0.999 <= expected <= each.high * 1.001
    assert each.mean == pytest.approx(expected, rel=0.01)


def test_a_period_that_forgets_the_end_saves_nothing_there() -> None:
    """One checkpoint would fit; Young's period is longer than the reservation."""
    limit = Walltime(3600.0, in_place=True)
    job = Job(7200.0, 300.0, 0, 600.0, 0, limit)
    with pytest.raises(ConfigError, match="not going to end"):
        simulate(job, Exponential(21600.0), Every(3600.0, saves_last=False), 50)
    assert simulate(job, Exponential(21600.0), Every(3600.0), 50).lost_s.max() < 50 * 3600.0


@pytest.mark.parametrize("preempt_h", [1.0, 4.0, 24.0])
@pytest.mark.parametrize("notice", [0.0, 30.0, 120.0])
@pytest.mark.parametrize("ckpt", [5.0, 25.0, 60.0])
def test_preemption_with_notice(preempt_h: float, notice: float, ckpt: float) -> None:
    """Failures every 24 h; t_ckpt is log-normal with sigma 0.5."""
    p95 = ckpt * math.exp(0.5 * 1.6448536)
    known = Conditions(
        ckpt, 24 * HOUR, 2 * ckpt, 60.0, 0.0, 90.0, None, preempt_h * HOUR, notice, 0.0, ckpt, p95
    )
    interval = known.best_interval_s
    ends = Preemption(preempt_h * HOUR, notice, ckpt, p95, 0.0, 90.0)
    job = Job(400 * HOUR, ckpt, 2 * ckpt, 60.0, 0.0, None, ends)
    runs = simulate(job, Exponential(24 * HOUR), Every(interval), 1000)
    found = summarise(runs, level=SURE)
    predicted = known.overhead(interval)
    assert predicted == pytest.approx(found.overhead.mean, rel=0.03)
    # First order in the preemptions: exact up to one per cent beside the interval of the mean.
    assert found.overhead.low * 0.99 <= predicted <= found.overhead.high * 1.01
    saved = found.saved_preemptions.mean / found.preemptions.mean
    hit_in_restore = 2 * ckpt / (preempt_h * HOUR)
    assert saved == pytest.approx(known.saved_chance, abs=0.01 + hit_in_restore)


@pytest.mark.parametrize("lag", [0, 60, 150])
def test_the_best_interval_does_not_hang_on_the_lag(lag: float) -> None:
    """Blocked 2 s, MTBF 6 h, restore 60 s: the middle one of three is best at any latency."""
    tried = np.array([150.0, 294.0, 600.0])
    job = Job(600 * HOUR, 2, 60, 0, lag)
    runs = simulate(job, Exponential(6 * HOUR), Sweep(tried), 3000)
    mean = [runs.overhead[place::3].mean() for place in range(3)]
    assert mean[1] == min(mean)
    assert mean[1] == pytest.approx({0: 0.0159, 60: 0.0190, 150: 0.0230}[int(lag)], abs=8e-4)


@pytest.mark.parametrize(("count", "simulated"), [(10, 0.1836), (19, 0.1720), (40, 0.1840)])
def test_two_tiers(count: int, simulated: float) -> None:
    """1 s near, 30 s far; failures every 600 s of which the near tier survives, 7200 s others; against
    the formula, and that against another simulation's few digits."""
    near, far = 600.0, 7200.0
    total = 1.0 / (1.0 / near + 1.0 / far)
    period = math.sqrt((count + 30) / (0.5 * (1 / (near * count) + 1 / far)))
    tier = FarTier(count, 30.0, 0.0, total / far, 30.0)
    runs = simulate(Job(1000 * period, 1, 1, 0, 0, None, None, tier), Exponential(total),
                    Every(period / count), 1000)  # fmt: skip
    predicted = two_tier_overhead(period, count, 1, 30, near, far, 1, 30)
    assert_agrees(runs, predicted)
    assert predicted == pytest.approx(simulated, rel=0.03)


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("down", [0.0, 120.0])
def test_two_tiers_with_downtime(share: float, down: float) -> None:
    mtbf, count, interval = 4000.0, 6, 300.0
    tier = FarTier(count, 90.0, 0.0, share, 200.0)
    job = Job(2400 * interval, 10, 20, down, 0, None, None, tier)
    runs = simulate(job, Exponential(mtbf), Every(interval), 2000)
    rest = (mtbf / (1 - share), mtbf / share, 20, 200, down)
    assert_agrees(runs, two_tier_overhead(count * interval, count, 10, 90, *rest))


def test_an_upload_in_the_background_costs_its_latency_when_the_node_is_lost() -> None:
    """All failures take the node along: the upload's latency is like one of the checkpoint."""
    interval, mtbf = 500.0, 20000.0
    far = Job(400 * mtbf, 5, 30, 60, 0, None, None, FarTier(1, 0.0, 250.0, 1.0, 30.0))
    runs = simulate(far, Exponential(mtbf), Every(interval), 1000)
    assert_agrees(runs, exact_overhead(interval, 5, mtbf, 30, 60, 250))
    none = replace(far, far=FarTier(1, 0.0, 250.0, 0.0, 30.0))
    assert_agrees(
        simulate(none, Exponential(mtbf), Every(interval), 1000),
        exact_overhead(interval, 5, mtbf, 30, 60),
    )


def test_the_textbook_value_is_not_within_three_percent() -> None:
    interval = exact_interval(300, 6 * HOUR)
    runs = simulate(Job(1500 * HOUR, 300, 600), Exponential(6 * HOUR), Every(interval), 500)
    assert textbook_overhead(300, interval, 6 * HOUR) < 0.85 * runs.overhead.mean()


@pytest.mark.parametrize(("shape", "best"), [(1.0, 57.0), (0.7, 57.0), (0.5, 70.0)])
def test_clustered_failures_hardly_move_the_interval(shape: float, best: float) -> None:
    """t_ckpt 5 min, MTBF 6 h, restore 10 min: the exponential optimum is good there too."""
    tried = np.array([20.0, 57.0, best, 160.0])
    failures = Weibull(360.0, shape)
    runs = simulate(Job(360.0 * 150, 5, 10), failures, Sweep(tried), 16000)
    mean = [1.0 + runs.overhead[place::4].mean() for place in range(4)]
    assert mean[1] < min(mean[0], mean[3])
    assert mean[1] == pytest.approx(mean[2], rel=5e-3)


def test_weibull_gaps_have_their_mean_and_shape() -> None:
    rng = np.random.default_rng(1)
    for shape, c2 in ((1.0, 1.0), (0.5, 5.0), (2.0, 4 / math.pi - 1)):
        drawn = Weibull(100.0, shape).after(rng, np.zeros(400_000), np.zeros(400_000))
        assert drawn.mean() == pytest.approx(100.0, rel=0.01)
        assert drawn.var() / drawn.mean() ** 2 == pytest.approx(c2, rel=0.05)


def test_replayed_failures_come_when_they_were_recorded() -> None:
    record = Replay(np.array([0.0, 10.0, 30.0]), 50.0, from_start=True)
    rng, key = np.random.default_rng(1), np.zeros(1)
    now, seen = np.zeros(1), []
    for _ in range(5):
        now = record.after(rng, now, key)
        seen.append(float(now[0]))
    assert seen == [10.0, 30.0, 50.0, 60.0, 80.0]
    assert record.mtbf_s == pytest.approx(50 / 3)
    assert record.gaps_s.tolist() == [10.0, 20.0, 20.0]
    assert record.scaled(100 / 3).times_s.tolist() == [0.0, 20.0, 60.0]


def test_a_replay_begins_anywhere_in_the_record() -> None:
    """Failures of a constant rate, replayed: each play another part, the mean that of the formula."""
    times = np.cumsum(np.random.default_rng(5).exponential(HOUR, 4000))
    record = Replay(times - times[0], float(times[-1]))
    interval = exact_interval(60, HOUR)
    runs = simulate(Job(100 * HOUR, 60, 30), record, Every(interval), 800)
    assert len(np.unique(runs.wall_s)) > 700
    predicted = exact_overhead(interval, 60, record.mtbf_s, 30)
    assert runs.overhead.mean() == pytest.approx(predicted, rel=0.03)


def test_an_adaptive_policy_finds_the_interval() -> None:
    """Believed to be ten times better than it is."""
    interval = exact_interval(60, 2 * HOUR)
    job, failures = Job(400 * HOUR, 60, 60), Exponential(2 * HOUR)
    wrong = Adaptive(60, 20 * HOUR)
    best = simulate(job, failures, Every(interval), 500).overhead.mean()
    fixed = simulate(job, failures, Every(exact_interval(60, 20 * HOUR)), 500).overhead.mean()
    learned = simulate(job, failures, wrong, 500).overhead.mean()
    assert learned == pytest.approx(best, rel=0.03)
    assert fixed > 1.3 * learned


def test_bounds_of_the_adaptive_policy() -> None:
    view = View(math.inf, *[np.zeros(1)] * 3, np.zeros(1, dtype=np.int64))
    assert Adaptive(5, 86400.0, most_s=120.0).pace(view).later_s == 120.0
    assert Adaptive(5, 86400.0, least_s=5000.0).pace(view).later_s == 5000.0
    assert Adaptive(5, 86400.0, first_s=7.0).pace(view).first_s == 7.0
    found = Adaptive(5, 86400.0).pace(view).later_s
    assert found == pytest.approx(exact_interval(5, 86400.0))


def test_time_is_accounted_for_to_the_last_second() -> None:
    job = Job(50 * HOUR, 20, 30, 60, 40, Walltime(4 * HOUR, 200.0, 60.0),
              Preemption(5 * HOUR, 45.0, 20.0, 50.0, 5.0, 100.0), FarTier(3, 0, 60.0, 0.3, 90.0))  # fmt: skip
    runs = simulate(job, Weibull(3 * HOUR, 0.7), EvenSplit(Adaptive(20, 3 * HOUR), 20), 300)
    parts = runs.lost_s + runs.checkpoint_s + runs.restore_s + runs.waiting_s
    assert runs.wall_s == pytest.approx(job.work_s + parts)
    for part in (runs.lost_s, runs.checkpoint_s, runs.restore_s, runs.waiting_s):
        assert part.min() >= -1e-6 * job.work_s and part.mean() > 0.0
    assert (runs.saved_preemptions <= runs.preemptions).all()
    stops = runs.allocations - 1 - runs.failures - runs.preemptions
    assert stops.min() >= 0 and stops.max() > 0
    assert runs.paid_s == pytest.approx(runs.wall_s - runs.waiting_s)


@pytest.mark.parametrize("seed", range(8))
def test_closed_forms_are_what_a_loop_comes_to(seed: int, loop: Any) -> None:
    """Random jobs with everything, the same failures for both: equal to the last second."""
    rng = np.random.default_rng(seed)
    compared = 0
    for _ in range(50):
        played = play_both_ways(rng, loop)
        if played is None:
            continue
        ours, theirs = played
        compared += 1
        for field in fields(loop.Totals):
            mine, his = float(getattr(ours, field.name)[0]), getattr(theirs, field.name)
            assert mine == pytest.approx(his, rel=1e-7, abs=1e-4), (compared, field.name)
    assert compared >= 45


@pytest.fixture(scope="module")
def loop() -> Any:
    sys.path.insert(0, str(ROOT))
    try:
        yield importlib.import_module("bench.event_loop")
    finally:
        sys.path.remove(str(ROOT))


def play_both_ways(rng: np.random.Generator, loop: Any) -> tuple[Runs, Any] | None:
    """A random job by the simulator and by the loop; None for one that never ends."""
    mtbf = 10 ** rng.uniform(2.5, 4.5)
    ckpt = mtbf * 10 ** rng.uniform(-2.5, -1)
    job = Job(
        mtbf * rng.uniform(1, 20),
        ckpt,
        rng.uniform(0, 2 * ckpt),
        rng.uniform(0, ckpt),
        rng.choice([0.0, rng.uniform(0, ckpt)]),
    )
    if rng.random() < 0.4:
        rest = (rng.uniform(0, ckpt), rng.uniform(0, ckpt), bool(rng.random() < 0.5))
        job = replace(job, walltime=Walltime(mtbf * rng.uniform(0.7, 2), *rest))
    preempts: Any = Never()
    if rng.random() < 0.4:
        often = mtbf * rng.uniform(0.5, 3)
        notice, wait = rng.uniform(0.5, 1.5) * ckpt, rng.uniform(0, ckpt)
        job = replace(job, preemption=Preemption(often, notice, ckpt, ckpt, 0.0, wait))
        preempts = record(rng, often)
    if rng.random() < 0.4:
        blocks = rng.choice([0.0, rng.uniform(0, 3 * ckpt)])
        lag, loss = rng.choice([0.0, rng.uniform(0, 3 * ckpt)]), float(rng.choice([0.0, 1.0]))
        tier = FarTier(int(rng.integers(1, 5)), blocks, lag, loss, rng.uniform(0, 3 * ckpt))
        job = replace(job, far=tier)
    interval = math.sqrt(2 * ckpt * mtbf) * rng.uniform(0.5, 1.5)
    saves_last = bool(rng.random() < 0.5)
    is_even = job.walltime is not None and saves_last and rng.random() < 0.5
    policy: Policy = Every(interval, saves_last)
    if is_even:
        policy = EvenSplit(policy, ckpt)
    failures = record(rng, mtbf)

    def even(left: float) -> float:
        return left / max(1, round(left / (interval + ckpt))) - ckpt if is_even else interval

    fleet = Fleet(job, failures, policy, 1, 0, rng)
    fleet._preempts = preempts
    fleet.state.preempt_s = preempts.after(rng, np.zeros(1), np.zeros(1))
    try:
        ours = engine._collect(job, 1, list(engine._play(fleet, 1, lambda share: None)))
    except ConfigError:  # its pieces do not fit between failures: the loop would not end either
        return None
    loses = job.far is not None and job.far.node_loss == 1.0
    run = loop.Run(job, clock(failures), clock(preempts), even, saves_last, ckpt, lambda: loses)
    return ours, run.play()


def record(rng: np.random.Generator, mtbf: float) -> Replay:
    times = np.cumsum(rng.exponential(mtbf, 400))
    return Replay(times, float(times[-1]) + mtbf, from_start=True)


def clock(process: Any) -> Any:
    rng = np.random.default_rng(0)
    return lambda now: float(process.after(rng, np.array([now]), np.zeros(1))[0])


def test_one_seed_one_result() -> None:
    job, failures = Job(3000, 5, 10), Exponential(600)
    first = simulate(job, failures, Every(60), 50, seed=3)
    assert np.array_equal(first.wall_s, simulate(job, failures, Every(60), 50, seed=3).wall_s)
    assert not np.array_equal(first.wall_s, simulate(job, failures, Every(60), 50, seed=4).wall_s)


def test_more_runs_than_fit_into_a_batch() -> None:
    told: list[float] = []
    runs = simulate(Job(1000, 5), Exponential(500), Every(60), 2 * BATCH + 5, progress=told.append)
    assert len(runs.wall_s) == 2 * BATCH + 5 and runs.wall_s.min() > 1000
    assert told == sorted(told) and told[-1] == 1.0 and len(told) >= 3
    half = simulate(Job(1000, 5), Exponential(500), Every(60), 2 * BATCH).wall_s
    assert np.array_equal(runs.wall_s[: 2 * BATCH], half)


def test_work_does_not_grow_with_the_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt is one step, whether it holds ten checkpoints or ten million."""
    steps = []
    step = Fleet.step
    monkeypatch.setattr(Fleet, "step", lambda self: steps.append(1) or step(self))
    for interval in (100.0, 0.001):
        steps.clear()
        runs = simulate(Job(1e5, 1e-6), Exponential(1e4), Every(interval), 20)
        assert len(steps) == runs.failures.max() + 1 < 40
    assert runs.checkpoints.min() >= 1e8


def test_without_failures_only_checkpoints_cost() -> None:
    runs = simulate(Job(1000, 1), Never(), Every(100), 5)
    assert runs.overhead == pytest.approx(0.01)
    assert runs.failures.sum() == 0 and runs.events == 0


def test_a_single_run_has_no_interval_of_the_mean() -> None:
    found = estimate(np.array([3.0]))
    assert (found.mean, found.low, found.high) == (3.0, -math.inf, math.inf)


def test_intervals_hold_the_mean_as_often_as_they_say() -> None:
    rng = np.random.default_rng(2)
    inside = [
        one.low <= 1.0 <= one.high
        for one in (estimate(rng.exponential(1.0, 200), 0.9) for _ in range(2000))
    ]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.03)


def test_the_price_is_paid_for_allocations_only() -> None:
    runs = simulate(Job(3600, 1, 0, 500), Exponential(900), Every(100), 50)
    found = summarise(runs, price_per_h=2.0)
    assert found.cost is not None
    assert found.cost.mean == pytest.approx((runs.wall_s - runs.waiting_s).mean() / 1800)
    assert summarise(runs).cost is None


@pytest.mark.parametrize(
    ("job", "named"),
    [
        (Job(0, 1), "work_s is 0"),
        (Job(1, -1), "t_ckpt_s is -1"),
        (Job(1, math.nan), "t_ckpt_s is nan"),
        (Job(1, 1, walltime=Walltime(0)), "length_s is 0"),
        (Job(1, 1, walltime=Walltime(60, 0, 60)), "no time for work"),
        (Job(1, 1, preemption=Preemption(0)), "mtbf_s is 0"),
        (Job(1, 1, far=FarTier(0)), "every is 0"),
        (Job(1, 1, far=FarTier(1, node_loss=1.5)), "node_loss is 1.5"),
    ],
)
def test_impossible_jobs_are_named(job: Job, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        simulate(job, Exponential(100), Every(10), 10)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Exponential(0),
        lambda: Weibull(1, 0),
        lambda: Replay(np.array([]), 5.0),
        lambda: Replay(np.array([0.0, 9.0]), 5.0),
        lambda: simulate(Job(1, 1), Exponential(1), Every(1), 0),
    ],
)
def test_impossible_failures_are_named(build: Any) -> None:
    with pytest.raises(ConfigError):
        build()
