"""Published and independently computed values of checkpoint theory."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from milepost.errors import ConfigError
from milepost.planner import levels, preemption, theory, walltime

MINUTE, HOUR = 60.0, 3600.0


@pytest.mark.parametrize(
    ("mtbf", "published", "daly", "exact", "young", "stretch", "textbook"),
    [
        (24 * 60, 117, 116.690, 116.6901, 120.000, 1.0958, 1.0833),
        (6 * 60, 57, 56.713, 56.7140, 60.000, 1.2204, 1.1667),
        (15, 9.1, 9.141, 9.1665, 12.247, 5.0083, 1.8165),
    ],
)
def test_daly_2006_published_optima(
    mtbf: float,
    published: float,
    daly: float,
    exact: float,
    young: float,
    stretch: float,
    textbook: float,
) -> None:
    """500 h of work, t_ckpt 5 min, restart 10 min; values in minutes."""
    best = theory.exact_interval(5, mtbf)
    assert theory.daly_interval(5, mtbf) == pytest.approx(published, abs=0.35)
    assert theory.daly_interval(5, mtbf) == pytest.approx(daly, abs=1e-3)
    assert best == pytest.approx(exact, abs=1e-4)
    assert theory.young_interval(5, mtbf) == pytest.approx(young, abs=1e-3)
    assert 1 + theory.exact_overhead(best, 5, mtbf, 10) == pytest.approx(stretch, abs=1e-4)
    at_young = theory.textbook_overhead(5, theory.young_interval(5, mtbf), mtbf)
    assert 1 + at_young == pytest.approx(textbook, abs=1e-4)


@pytest.mark.parametrize(
    ("interval", "ckpt", "mtbf", "down", "restore", "formula", "simulated", "error"),
    [
        (57, 5, 360, 0, 10, 69.565, 69.518, 0.046),
        (9.1, 5, 15, 0, 10, 45.576, 45.601, 0.093),
        (100, 10, 100, 5, 10, 232.569, 232.536, 0.349),
    ],
)
def test_expected_time_of_a_chunk(
    interval: float,
    ckpt: float,
    mtbf: float,
    down: float,
    restore: float,
    formula: float,
    simulated: float,
    error: float,
) -> None:
    value = theory.expected_time(interval, ckpt, mtbf, restore, down)
    assert value == pytest.approx(formula, abs=1e-3)
    assert abs(value - simulated) < 3 * error


@pytest.mark.parametrize(
    ("ratio", "young", "exact", "young_excess", "daly_excess", "slowdown"),
    [
        (0.001, 0.0447, 0.0441, 0.000, 0.0000, 1.046),
        (0.01, 0.1414, 0.1348, 0.015, 0.0000, 1.156),
        (0.1, 0.4472, 0.3832, 0.47, 0.0000, 1.62),
        (0.25, 0.7071, 0.5512, 1.8, 0.0001, 2.23),
        (0.5, 1.000, 0.6983, 5.0, 0.0011, 3.31),
        (1, 1.414, 0.8414, 14, 0.014, 6.3),
        (2, 2.000, 0.9475, 41, 0.14, 19),
    ],
)
def test_where_the_textbook_interval_fails(
    ratio: float,
    young: float,
    exact: float,
    young_excess: float,
    daly_excess: float,
    slowdown: float,
) -> None:
    """t_ckpt/MTBF from tiny to hopeless; MTBF is 1."""

    def stretch(interval: float) -> float:
        return theory.expected_time(interval, ratio, 1.0) / interval

    def excess(interval: float) -> float:
        return 100 * (stretch(interval) / stretch(theory.exact_interval(ratio, 1.0)) - 1)

    assert theory.young_interval(ratio, 1.0) == pytest.approx(young, abs=5e-4)
    assert theory.exact_interval(ratio, 1.0) == pytest.approx(exact, abs=5e-5)
    assert excess(theory.young_interval(ratio, 1.0)) == pytest.approx(
        young_excess, rel=0.03, abs=6e-4
    )
    assert excess(theory.daly_interval(ratio, 1.0)) == pytest.approx(
        daly_excess, rel=0.05, abs=6e-5
    )
    assert stretch(theory.exact_interval(ratio, 1.0)) == pytest.approx(slowdown, rel=5e-3)


@pytest.mark.parametrize(
    ("ckpt_s", "mtbf_s", "factor"),
    [
        (5, 24 * HOUR, 1.02),
        (60, 6 * HOUR, 1.13),
        (300, 6 * HOUR, 1.32),
        (300, 1.8 * HOUR, 1.69),
        (600, 1.8 * HOUR, 2.14),
    ],
)
def test_textbook_understates_the_cost(ckpt_s: float, mtbf_s: float, factor: float) -> None:
    young = theory.young_interval(ckpt_s, mtbf_s)
    exact = theory.exact_overhead(young, ckpt_s, mtbf_s, restore_s=2 * ckpt_s)
    assert exact / theory.textbook_overhead(ckpt_s, young, mtbf_s) == pytest.approx(
        factor, abs=0.01
    )


@pytest.mark.parametrize(
    ("ckpt_s", "at_default", "at_best"), [(5, 0.042, 0.011), (30, 0.25, 0.026)]
)
def test_default_interval_is_dear_when_checkpoints_are(
    ckpt_s: float, at_default: float, at_best: float
) -> None:
    best = theory.exact_interval(ckpt_s, 24 * HOUR)
    assert theory.exact_overhead(120, ckpt_s, 24 * HOUR) == pytest.approx(at_default, abs=2e-3)
    assert theory.exact_overhead(best, ckpt_s, 24 * HOUR) == pytest.approx(at_best, abs=1e-3)


@pytest.mark.parametrize(("work", "chunks"), [(30000, 529), (600, 11), (120, 2)])
def test_finite_work_in_whole_chunks(work: float, chunks: int) -> None:
    def time(count: int) -> float:
        return count * theory.expected_time(work / count, 5, 360, 10)

    assert theory.whole_chunks(work, 5, 360) == chunks
    assert chunks == min(range(1, 3 * chunks + 10), key=time)


def test_finite_work_keeps_at_least_one_chunk() -> None:
    assert theory.whole_chunks(1.0, 100.0, 1000.0) == 1
    assert theory.whole_chunks(1e6, 0.0, 1e4) > 1000


@pytest.mark.parametrize(("lag", "simulated"), [(0, 1.0159), (60, 1.0190), (150, 1.0230)])
def test_background_checkpoints_add_their_latency(lag: float, simulated: float) -> None:
    """Blocked 2 s, MTBF 6 h, restore 60 s, interval 294 s; simulated values."""
    assert theory.young_interval(2, 6 * HOUR) == pytest.approx(294, abs=0.1)
    first_order = 1 + theory.textbook_overhead(2, 294, 6 * HOUR) + (lag + 60) / (6 * HOUR)
    exact = 1 + theory.exact_overhead(294, 2, 6 * HOUR, 60, durable_lag_s=lag)
    assert first_order == pytest.approx({0: 1.0164, 60: 1.0192, 150: 1.0233}[int(lag)], abs=1e-4)
    assert exact == pytest.approx(simulated, abs=1e-3)


def test_restore_and_downtime_do_not_move_the_optimum() -> None:
    def stretch(interval: float) -> float:
        return 1 + theory.exact_overhead(interval, 10, 100, 10, 5)

    grid = np.linspace(20, 80, 6001)
    best = grid[np.argmin([stretch(x) for x in grid])]
    assert theory.exact_interval(10, 100) == pytest.approx(best, abs=0.01)
    assert 1 - 1 / stretch(38.3) == pytest.approx(0.469, abs=1e-3)
    assert 1 - 1 / stretch(math.sqrt(2 * 85 * 10) - 10) == pytest.approx(0.473, abs=1e-3)


def test_hopeless_jobs_are_infinite_not_an_overflow() -> None:
    assert theory.expected_time(1e6, 1, 1) == math.inf
    assert theory.exact_overhead(1e6, 1, 1) == math.inf
    assert theory.daly_interval(3.0, 1.0) == 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: theory.exact_interval(1, 0),
        lambda: theory.exact_interval(-1, 10),
        lambda: theory.young_interval(math.nan, 10),
        lambda: theory.overhead_checkpoint(1, 0),
        lambda: theory.cost_overhead(1, 1, 0, 10),
    ],
)
def test_impossible_numbers_are_named(call: Callable[[], float]) -> None:
    with pytest.raises(ConfigError):
        call()


def test_cost_formulas() -> None:
    assert theory.cost_overhead(2.0, 4, 0.8, 1800) == pytest.approx(5.0)
    assert theory.cost_total(2.0, 4, 0.8, 5400, 1800) == pytest.approx(20.0)


def saved_minutes(limit: int, ckpt: int, mtbf: float, gone: int, policy: object) -> float:
    """Expected saved work of a reservation in minutes, by recursion over the minutes left."""
    rate = 1.0 / mtbf
    value = np.zeros(limit + 1)
    for left in range(ckpt + 1, limit + 1):
        options = range(1, left - ckpt + 1) if policy is None else [policy(left)]  # type: ignore[operator]
        best = 0.0
        for work in options:
            span = work + ckpt
            ends = np.arange(span)
            weight = np.exp(-rate * ends) - np.exp(-rate * (ends + 1))
            at = left - gone - ends - 0.5
            lost = np.interp(at, np.arange(limit + 1), value, left=0.0)
            best = max(best, math.exp(-rate * span) * (work + value[left - span]) + weight @ lost)
        value[left] = best
    return float(value[limit])


@pytest.mark.parametrize(
    ("limit", "mtbf", "optimum", "even"),
    [(60, 360, 49.00, 49.00), (120, 1440, 109.38, 109.38), (240, 360, 196.26, 196.25)],
)
def test_even_split_of_a_reservation(limit: int, mtbf: float, optimum: float, even: float) -> None:
    """t_ckpt 5 min, 10 min lost at a failure: against dynamic programming."""

    def split(left: int) -> int:
        return max(1, round(walltime.even_split(left, 5, mtbf)))

    found = saved_minutes(limit, 5, mtbf, 10, split)
    assert found == pytest.approx(even, rel=2e-3)
    assert found == pytest.approx(optimum, rel=2e-3)
    if limit <= 120:
        assert saved_minutes(limit, 5, mtbf, 10, None) == pytest.approx(optimum, rel=2e-3)


def test_even_split_of_a_day() -> None:
    def split(left: int) -> int:
        return max(1, round(walltime.even_split(left, 5, 360)))

    assert saved_minutes(1440, 5, 360, 10, split) == pytest.approx(1178.50, rel=2e-3)


def test_one_checkpoint_at_the_end_of_a_short_reservation() -> None:
    assert walltime.even_split(60, 5, 360) == 55
    assert walltime.even_split(3, 5, 360) == 0


def test_reservations_needed() -> None:
    assert walltime.reservations(100, 1000, 10, 60) == 1
    assert walltime.reservations(940, 1000, 10, 60) == 1
    assert walltime.reservations(941, 1000, 10, 60) == 2
    assert walltime.reservations(940 + 930, 1000, 10, 60) == 2
    assert walltime.reservations(940 + 931, 1000, 10, 60) == 3
    with pytest.raises(ConfigError, match="leaves no time"):
        walltime.reservations(5000, 100, 50, 60)


@pytest.mark.parametrize(
    ("distribution", "start", "gain"),
    [
        (stats.uniform(1, 6.5), 5.5, 3.1154),
        (stats.uniform(1, 4), 5.0, 5.0),
        (stats.truncnorm(-3.5, np.inf, 3.5, 1), 4.792, 4.6966),
    ],
)
def test_when_to_start_the_last_checkpoint(
    distribution: stats.rv_continuous, start: float, gain: float
) -> None:
    """Barbut et al. 2023: 10 s are left and the duration is random."""
    count = 4000
    sample = distribution.ppf((np.arange(count) + 0.5) / count)
    found = walltime.last_checkpoint_start(10, list(sample))
    assert found == pytest.approx(start, abs=0.03)
    assert (10 - found) * distribution.cdf(found) == pytest.approx(gain, abs=1e-3)


def test_last_checkpoint_does_not_start_when_none_fits() -> None:
    assert walltime.last_checkpoint_start(1, [2.0, 3.0]) == 0.0


@pytest.mark.parametrize(
    ("notice", "chance", "mtbf", "interval"),
    [(30, 0.6423, 27462, 1172), (60, 0.9600, 69685, 1867), (120, 0.9991, 85960, 2073)],
)
def test_preemption_with_notice(notice: float, chance: float, mtbf: float, interval: float) -> None:
    """Failures every 24 h, preemptions every 4 h, t_ckpt log-normal (25 s, sigma 0.5)."""
    p95 = 25 * math.exp(0.5 * stats.norm.ppf(0.95))
    found = preemption.forced_checkpoint_chance(notice, 0.0, 25, p95)
    both = preemption.effective_mtbf(24 * HOUR, 4 * HOUR, found)
    assert found == pytest.approx(chance, abs=1e-4)
    assert both == pytest.approx(mtbf, rel=1e-3)
    assert theory.young_interval(25, both) == pytest.approx(interval, abs=1)


def test_preemption_without_notice() -> None:
    both = preemption.effective_mtbf(24 * HOUR, 4 * HOUR, 0.0)
    assert both == pytest.approx(12343, abs=1)
    assert theory.young_interval(25, both) == pytest.approx(786, abs=1)
    assert preemption.forced_checkpoint_chance(30, 40, 1, 2) == 0.0
    assert preemption.forced_checkpoint_chance(30, 0, 10, 10) == 1.0
    assert preemption.effective_mtbf(HOUR, None, 0.0) == HOUR


def test_two_tiers() -> None:
    found = levels.two_tiers(1, 30, 600, 7200)
    assert found.local_per_remote == pytest.approx(18.974, abs=1e-3)
    assert found.period_s == pytest.approx(657.27, abs=0.01)
    assert found.overhead == pytest.approx(0.14902, abs=1e-5)
    alone = 1 / (1 / 600 + 1 / 7200)
    one_tier = theory.exact_overhead(theory.exact_interval(30, alone), 30, alone, 30)
    assert one_tier == pytest.approx(0.498, rel=1e-2)


def test_silent_errors() -> None:
    period, overhead = levels.silent_error_period(2, 5, 1000, 360)
    assert period == pytest.approx(54.132, abs=1e-3)
    assert overhead == pytest.approx(0.25863, abs=1e-5)


def test_mtbf_scales_with_nodes() -> None:
    assert levels.job_mtbf(16384 / 8, 6.5e-3) == pytest.approx(1.803 * HOUR, rel=1e-3)
    assert levels.job_mtbf(131072 / 8, 6.5e-3) == pytest.approx(0.225 * HOUR, rel=2e-3)
    assert levels.job_mtbf(128, 6.5e-3) == pytest.approx(28.8 * HOUR, rel=2e-3)


@pytest.mark.parametrize(
    ("minutes", "ratio"), [(5, 0.7756), (10, 0.8251), (15, 0.8292), (30, 0.7888), (60, 0.6654)]
)
def test_useful_ratio_of_a_large_job(minutes: float, ratio: float) -> None:
    found = levels.useful_ratio(minutes * MINUTE, MINUTE, levels.job_mtbf(2048, 6.5e-3), 5 * MINUTE)
    assert found == pytest.approx(ratio, abs=1e-4)
